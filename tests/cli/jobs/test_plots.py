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


def test_curves_are_written_as_a_picture_and_a_comparison_as_a_page(hvj: Hvj, tmp_path: Path) -> None:
    done = hvj("job", "plot", "fast", "slow", "--output", str(tmp_path / "loss.png"))
    assert (done.code, done.stdout) == (0, "")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert hvj("experiment", "compare", "-n", "cifar", "-o", str(tmp_path / "loss.html")).code == 0
    page = (tmp_path / "loss.html").read_text()
    ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])
    query = ("--query", "[].[job, epoch, accuracy, learningRate]", "-o", "json")
    rows = hvj("job", "plot", "-e", "cifar", "-m", "accuracy", *query).data
    assert sorted(rows) == [["fast", 1, 0, 0.1], ["fast", 2, 0.75, 0.1], ["slow", 1, 0, 0.1], ["slow", 2, 0.25, 0.1]]
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
