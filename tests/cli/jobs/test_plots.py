"""`hvj job plot` and `hvj experiment compare`: what the history in the status shows."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.cluster_state import TIME, ClusterState
from cli.program import Hvj, terminal

LABEL = "horovodjob.dev/experiment"
LOSSES = {"fast": (1.0, 0.25), "slow": (1.0, 0.75)}


@pytest.fixture(autouse=True)
def jobs(cluster: ClusterState) -> None:
    """Two jobs of an experiment with a history of two epochs, and one without."""
    for name, losses in LOSSES.items():
        script = {"path": "train.py", "args": ["--lr", "0.4" if name == "fast" else "0.1", "--epochs", "2"]}
        cluster.create(name, command=None, script=script, labels={LABEL: "cifar"})
        history = [
            {"epoch": epoch, "time": TIME, "metrics": {"loss": loss, "accuracy": 1 - loss}, "learningRate": 0.1}
            for epoch, loss in enumerate(losses, 1)
        ]
        values = {"min": {"epoch": 1, "value": 0.0}, "max": {"epoch": 2, "value": 1 - losses[1]}, "mode": "max"}
        training = {"progress": 1, "epoch": 2, "history": history, "extremes": {"accuracy": values}}
        cluster.run(name, training=training)
    cluster.create("new")


def test_the_curves_of_jobs_fit_a_terminal_and_have_no_color_where_it_is_not_wanted(
    hvj: Hvj, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal("job", "plot", "fast", "slow") as screen:
        assert screen.end() == 0
    assert "\x1b[" in screen.shown
    monkeypatch.setenv("NO_COLOR", "1")
    with terminal("job", "plot", "fast", "slow") as screen:
        assert screen.end() == 0
    assert "\x1b[" not in screen.shown
    lines = screen.shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-2:] == ["⠤a⠤ fast", "⠤b⠤ slow"]


def test_the_rows_of_a_plot_are_printed_as_data(hvj: Hvj) -> None:
    query = ("--query", "[].[job, epoch, accuracy, learningRate]", "-o", "json")
    rows = hvj("job", "plot", "-e", "cifar", "-m", "accuracy", *query).data
    assert sorted(rows) == [["fast", 1, 0, 0.1], ["fast", 2, 0.75, 0.1], ["slow", 1, 0, 0.1], ["slow", 2, 0.25, 0.1]]


def test_curves_are_written_as_a_picture_and_a_comparison_as_a_page(hvj: Hvj, tmp_path: Path) -> None:
    done = hvj("job", "plot", "fast", "slow", "--output", str(tmp_path / "loss.png"))
    assert (done.code, done.stdout) == (0, "")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert hvj("experiment", "compare", "-n", "cifar", "-o", str(tmp_path / "loss.html")).code == 0
    page = (tmp_path / "loss.html").read_text()
    ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])
    assert page.index("<td>fast</td><td>0.25</td><td>2</td><td>0.4</td>") < page.index("<td>slow</td>")


def test_jobs_are_compared_by_the_settings_that_differ_with_the_best_first(hvj: Hvj) -> None:
    lines = hvj("experiment", "compare", "-n", "cifar", "-o", "table").stdout.splitlines()
    assert [line.split() for line in (lines[0], *lines[2:])] == [
        ["Job", "loss", "Epoch", "--lr"],
        ["fast", "0.25", "2", "0.4"],
        ["slow", "0.75", "2", "0.1"],
    ]
    best = ("--query", "[0].[job, metric, best]")
    assert hvj("experiment", "compare", "-n", "cifar", "--goal", "max", "-m", "loss", *best).data[2] == 1
    assert hvj("experiment", "compare", "-n", "cifar", "-m", "accuracy", *best).data == ["fast", "accuracy", 0.75]


def test_programs_and_names_of_others_are_short_and_harmless_in_the_table(hvj: Hvj, cluster: ClusterState) -> None:
    history = [{"epoch": 1, "time": TIME, "metrics": {"loss": 1.0}}]
    for rate in (1, 2):
        program = "import horovod\n" + "print('step')\n" * 500 + f"rate = {rate}"
        command = ["python3", "-c", program, f"--\x1b[2J=\x1b[{rate}m"]
        cluster.create(f"inline-{rate}", command=command, labels={LABEL: "inline"})
        cluster.run(f"inline-{rate}", training={"progress": 1, "history": history})
    comparison = ("experiment", "compare", "-n", "inline")
    lines = hvj(*comparison, "-o", "table").stdout.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) < 120
    assert "\x1b" not in "".join(lines)
    for rate, line in enumerate(lines[2:], 1):
        assert f"inline-{rate}" in line
        assert "import horovod print('s…" in line
        assert f"rate = {rate}  ^[[{rate}m" in line
    whole = hvj(*comparison, "-o", "json", "--query", '[0].settings."-c"').data
    assert whole.count("print") == 500


def test_a_metric_of_unknown_direction_has_both_ends_and_no_best_job(hvj: Hvj, cluster: ClusterState) -> None:
    for name, score in (("worse", 0.2), ("better", 0.9)):
        cluster.create(name, labels={LABEL: "masks"})
        history = [{"epoch": 1, "time": TIME, "metrics": {"dice": score}}]
        cluster.run(name, training={"progress": 1, "history": history})
    done = hvj("experiment", "compare", "-n", "masks", "-o", "table")
    assert "whether a lower or a higher dice is better is not known" in done.stderr
    assert "--goal min or --goal max" in done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["Job", "lowest", "dice", "highest", "dice"]
    assert sorted(row.split() for row in rows[2:]) == [["better", "0.9", "0.9"], ["worse", "0.2", "0.2"]]
    best = hvj("experiment", "compare", "-n", "masks", "--goal", "max", "--query", "[].[job, best]", "-o", "json")
    assert best.data == [["better", 0.9], ["worse", 0.2]]


def test_what_cannot_be_plotted_is_an_error(hvj: Hvj) -> None:
    for command, code, sentence in (
        (("job", "plot"), 2, "name the jobs to plot, or an experiment with -e for all of its jobs"),
        (("job", "plot", "new"), 1, "no job has a history of epochs yet"),
        (("job", "plot", "fast", "-m", "f1"), 3, "a metric f1; there are: accuracy, loss, learningRate"),
        (("job", "plot", "fast", "-o", "loss.gif"), 2, "loss.gif is no picture: its name must end with .png, .svg"),
        (("experiment", "compare", "-n", "cifar", "-m", "f1"), 3, "a metric f1; there are: accuracy, loss"),
        (("experiment", "compare", "-n", "none"), 3, "experiment none does not exist"),
    ):
        done = hvj(*command)
        assert (done.code, done.stdout) == (code, "")
        assert sentence in done.stderr
        assert len(done.stderr.splitlines()) == 1
