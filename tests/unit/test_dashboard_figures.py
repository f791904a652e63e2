"""What the dashboard shows of trainings, comparisons, GPU hours and settings."""

import hashlib
import json
import re
import shlex
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from horovodjob_dashboard.comparison_table import Choice, comparison_of
from horovodjob_dashboard.curves import charts_of_a_job
from horovodjob_dashboard.gpu_usage import gpu_hours, usage
from horovodjob_dashboard.job_details import attempts, progress_facts, run_again
from horovodjob_dashboard.job_rows import JobRow, cause, row
from horovodjob_dashboard.page_settings import LinkTemplate, PageSettings, Price
from horovodjob_dashboard.pages import STATIC
from horovodjob_dashboard.parallel_axes import parallel_axes
from support.api_client import ROOT
from unit.test_dashboard import NOON, Object, job, trained

STALLED = "rank 5 (worker 2, node gpu-7) is stopped; the other 7 ranks wait in the exchange"


@pytest.mark.parametrize(
    "values",
    [(0.00049975, 0.0004998), (0.99998, 1.00002), (123456.0, 123457.0), (1e6, 1000001.0), (0.0, 0.0), (1e15, 1e15 + 1)],
)
def test_the_texts_of_an_axis_differ_and_are_inside_the_picture(values: tuple[float, ...]) -> None:
    (chart,) = charts_of_a_job(trained(*values))
    texts = [tick.text for tick in chart.ys]
    assert len(set(texts)) == len(texts) > 1
    assert chart.left - 6 - 7 * max(map(len, texts)) >= 0, "a character has at most 7 units of width"
    assert all(tick.at + 3.5 * len(tick.text) <= 480 for tick in chart.xs)


def test_a_value_that_is_nan_is_a_gap_with_a_mark_and_one_that_was_not_reported_is_none() -> None:
    made = trained(3, 2, 1, val_loss=[3, 2, 1])
    made["status"]["training"]["history"][1] = {"epoch": 2, "metrics": {}, "nonFinite": ["loss"]}
    (chart,) = charts_of_a_job(made)
    loss, val_loss = chart.lines
    assert [len(part) for part in loss.parts] == [1, 1]
    (gap,) = loss.gaps
    assert (abs(gap.x - (chart.left + chart.right) / 2) < 0.1, gap.y) == (True, 176)
    assert (loss.values, val_loss.values) == ({1: "3", 2: "NaN", 3: "1"}, {1: "3", 3: "1"})
    assert ([len(part) for part in val_loss.parts], val_loss.gaps) == ([2], [])


def test_a_metric_that_was_never_a_number_has_marks_and_no_scale() -> None:
    history: list[Object] = [{"epoch": epoch, "metrics": {}, "nonFinite": ["loss"]} for epoch in (1, 2)]
    (chart,) = charts_of_a_job(job("train", training={"progress": 1, "history": history}))
    assert ([len(line.gaps) for line in chart.lines], chart.ys) == ([2], [])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "ValueError: bad (KeyError: x) (RankFailed: mpirun ended with exit code 137 (SIGKILL); attempt 1)",
            ("ValueError: bad (KeyError: x)", "RankFailed: mpirun ended with exit code 137 (SIGKILL); attempt 1"),
        ),
        (
            "attempt 1 ended, the loss is not a number (RankFailed: mpirun ended with exit code 3); attempt 2 starts "
            "at 12:00:00Z",
            (
                "the loss is not a number",
                "attempt 1 ended, RankFailed: mpirun ended with exit code 3; attempt 2 starts at 12:00:00Z",
            ),
        ),
        (f"no step since 14:32:10Z: {STALLED}", (STALLED, "no step since 14:32:10Z")),
        (
            f"attempt 1 ended, ProgressDeadlineExceeded: no step since 14:32:10Z: {STALLED} "
            "(runPolicy.progressDeadlineSeconds is 600); attempt 2 starts at 14:50:00Z",
            (
                f"{STALLED} (runPolicy.progressDeadlineSeconds is 600); attempt 2 starts at 14:50:00Z",
                "attempt 1 ended, ProgressDeadlineExceeded: no step since 14:32:10Z",
            ),
        ),
        ("no step since 14:32:10Z", None),
        ("RankFailed: mpirun ended with exit code 3; attempt 1", None),
        (" (RankFailed: x)", None),
        ("attempt 1 ended,  (RankFailed: x)", None),
        ("32 ranks run on 4 nodes", None),
        ("", None),
    ],
)
def test_the_words_of_the_program_or_the_rank_that_hangs_are_the_cause_and_the_rest_is_a_detail(
    message: str, expected: tuple[str, str] | None
) -> None:
    assert cause(message) == (expected or (message, ""))


def test_what_the_program_reports_now_is_text() -> None:
    training = {
        "progress": 0.5,
        "epoch": 3,
        "epochs": 10,
        "step": 40,
        "stepsPerEpoch": 80,
        "samplesPerSecond": 11842.4,
        "metrics": {"accuracy": 0.5, "loss": 1.23456789},
        "nonFinite": ["val_loss"],
        "best": {"metric": "loss", "mode": "min", "value": 1.1, "epoch": 2},
        "goodput": {"percent": 83.25, "seconds": {"input": 20}},
        "slowestRank": {"rank": 5, "pod": "train-worker-2", "node": "gpu-7", "ratio": 1.5, "section": "input"},
    }
    assert progress_facts(job("train", training=training)) == [
        ("Epoch", "3 of 10"),
        ("Step", "40 of 80"),
        ("loss", "1.2346"),
        ("accuracy", "0.5"),
        ("val_loss", "NaN or infinite"),
        ("Samples/s", "11,842"),
        ("Best loss", "1.1 in epoch 2"),
        ("Goodput", "83.2 %"),
        ("Slowest rank", "5 (train-worker-2, gpu-7), 1.5 times the median in input"),
        ("Lost time", "input 100.0 %"),
    ]
    assert progress_facts(job("train")) == []


def test_the_commands_that_run_a_job_again_have_its_spec_and_are_safe_to_paste() -> None:
    made = job("train-2", phase="Failed") | {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob"}
    made["metadata"]["labels"] = {"horovodjob.dev/owner": "ada", "horovodjob.dev/sweep": "s"}
    script = {"path": "train.py", "args": ["--lr", "0.1; rm -rf /", "x\nEND\nrm -rf ~"]}
    made["spec"] |= {"script": script, "runPolicy": {"suspend": True, "backoffLimit": 2}}
    hvj, kubectl = run_again(made)
    assert shlex.split(hvj) == ["hvj", "run", "--from", "train-2", "-w", "team", "--", *script["args"]]
    first, *lines, last = kubectl.splitlines()
    assert (first, last, lines.count("END")) == ("kubectl create -f - <<'END'", "END", 0)
    created = yaml.safe_load("\n".join(lines))
    assert created["metadata"] == {
        "generateName": "train-2-",
        "namespace": "team",
        "labels": {"horovodjob.dev/owner": "ada"},
    }
    assert created["spec"] == made["spec"] | {"runPolicy": {"backoffLimit": 2}}


def test_what_mpirun_says_about_the_end_of_the_ranks_is_folded_in_an_attempt() -> None:
    rule = "-" * 74
    own = f"a table\n{rule}\nloss 1.5\n{rule}\nValueError: bad"
    block = f"{rule}\nmpirun detected that one or more processes exited\n\n  Exit code: 3\n{rule}"
    error = {
        "time": "2026-11-22T12:01:00Z",
        "attempt": 1,
        "reason": "RankFailed",
        "message": f"{own}\n{block}\nthe end",
    }
    (attempt,) = attempts(job("train", errors=[error]), [])
    found = next(moment for moment in attempt.moments if moment.is_error)
    assert (found.text, found.mpirun) == (f"{own}\nthe end", block)


@given(st.text("-\nm ", max_size=400))
def test_a_message_of_dashes_is_shown_in_time(text: str) -> None:
    message = "-" * 20 + text
    error = {"time": "2026-11-22T12:01:00Z", "attempt": 1, "reason": "RankFailed", "message": message}
    (attempt,) = attempts(job("train", errors=[error]), [])
    assert any(moment.text.strip("\n") == message.strip("\n") for moment in attempt.moments)


def used(row: JobRow, days: float) -> float:
    """GPU hours of a job in the last days before noon."""
    return round(gpu_hours(row, NOON - timedelta(days=days), NOON), 2)


def test_gpu_hours_are_those_of_the_time_that_is_asked_for() -> None:
    made = job("train", startTime="2026-11-20T11:00:00Z", runningTime="2026-11-20T12:00:00Z", phase="Running")
    made["spec"]["worker"] = {"replicas": 2, "gpus": 4}
    assert [used(row(made), days) for days in (1, 2, 30)] == [8 * 24, 8 * 48, 8 * 48]
    made["status"]["completionTime"] = "2026-11-21T18:00:00Z"
    assert [used(row(made), days) for days in (0.5, 1, 30)] == [0, 8 * 6, 8 * 30]
    made["status"] |= {"attempt": 2, "activeSeconds": 3600}  # suspended once: the time of its pods counts
    assert used(row(made), 30) == 8 * 32
    waits = job("waits", phase="Queued", startTime=None)
    assert used(row(waits), 30) == 0


def test_time_before_a_suspension_is_spread_from_the_creation_to_the_last_start() -> None:
    made = job("train", phase="Suspended", attempt=2, activeSeconds=10 * 3600)
    made["metadata"]["creationTimestamp"] = "2026-11-20T12:00:00Z"
    made["spec"]["worker"] = {"replicas": 1, "gpus": 1}
    assert [used(row(made), days) for days in (1, 2, 30)] == [5, 10, 10]


def test_links_have_the_fields_of_the_job_escaped_and_never_another_host() -> None:
    link = LinkTemplate.parse("Grafana=https://grafana.example.com/d/jobs?var-name={name}&e={experiment}")
    assert link.of({"name": "a&b=/c", "experiment": "ü"}) == (
        "https://grafana.example.com/d/jobs?var-name=a%26b%3D%2Fc&e=%C3%BC"
    )
    for wrong in (
        "Grafana",
        "=https://a.example",
        "x=javascript:alert(1)",
        "x=https://",
        "x=//a.example",
        "x=https://{name}.example.com/",
        "x=https://u:p@a.example/",
        "x=https://a.example/{other}",
        "x=https://a.example/ b",
        "x=https://a.example\\@b.example",
        "x=https://[::1/",
        "x=ftp://a.example/",
    ):
        with pytest.raises(ValueError, match="link"):
            LinkTemplate.parse(wrong)


def test_the_hours_of_spot_jobs_cost_their_own_price_and_the_difference_is_what_they_save() -> None:
    times = {"startTime": "2026-11-22T10:00:00Z", "runningTime": "2026-11-22T10:00:00Z", "phase": "Running"}
    rows = []
    for name, spot in (("spot", True), ("regular", False)):
        made = job(name, **times)
        made["spec"] |= {"worker": {"replicas": 1, "gpus": 4}, "spot": spot}
        rows.append(row(made))
    found = usage(rows, NOON - timedelta(days=1), NOON)
    assert (found.gpu_hours, found.spot_gpu_hours) == (16, 8)
    (namespace,) = found.groups["namespace"]
    assert (namespace.gpu_hours, namespace.spot_gpu_hours) == (16, 8)
    prices = PageSettings(price=Price.parse("3 EUR"), spot_price=Price.parse("0.50 EUR"))
    assert (prices.cost(16, 8), prices.saving(8)) == ("28.00 EUR", "20.00 EUR")
    same = PageSettings(price=Price.parse("3 EUR"))
    assert (same.cost(16, 8), same.saving(8), PageSettings().cost(16, 8)) == ("48.00 EUR", "", "")


@pytest.mark.parametrize("price", [None, "0.40 EUR", "3 USD"])
def test_a_spot_price_needs_a_higher_price_in_its_currency(price: str | None) -> None:
    with pytest.raises(ValueError, match="price"):
        PageSettings(price=Price.parse(price) if price else None, spot_price=Price.parse("0.50 EUR"))


def test_a_price_is_a_number_and_a_currency() -> None:
    assert (Price.parse("2.90 EUR").of(1000), str(Price.parse("3"))) == ("2,900.00 EUR", "3")
    for wrong in ("", "EUR", "-1", "1e9", "nan", "2,90 EUR", "2 EUR <b>x"):
        with pytest.raises(ValueError, match="price"):
            Price.parse(wrong)


def trial(name: str, parameters: str, loss: float | None, **spec: Any) -> Object:
    made = trained(loss) if loss is not None else job(name, phase="Queued")
    made["metadata"] |= {"name": name, "annotations": {"horovodjob.dev/sweep-parameters": parameters}}
    made["spec"] |= {"command": ["python3", "train.py", *spec.pop("options", [])]} | spec
    return made


def test_a_sweep_shows_all_trials_with_their_parameters_in_the_chosen_order() -> None:
    rates = [10.0**-power for power in range(12)]
    trials = {
        f"team/s-{index}": trial(
            f"s-{index}", json.dumps({"lr": rate, "opt": "adam"}), index / 10 or None, options=[f"--lr={rate}"]
        )
        for index, rate in enumerate(rates)
    }
    trials["team/odd"] = trial("odd", "[no JSON", 9.0)

    def shown(**query: str) -> Any:
        return comparison_of(trials, Choice.from_query(query))

    found = shown(metric="loss")
    assert [each.title for each in found["columns"]] == ["Job", "Phase", "Best loss", "Epoch", "lr", "opt"]
    assert [each.shown_name for each in found["rows"]] == [*(f"s-{index}" for index in range(1, 12)), "odd", "s-0"]
    assert [each.color for each in found["rows"]] == [*range(8), None, None, None, None, None]
    assert len(found["charts"][0].lines) == 8
    by_rate = [each.shown_name for each in shown(sort="setting:lr")["rows"]]
    assert by_rate == [*(f"s-{index}" for index in reversed(range(12))), "odd"]
    reverse = [each.shown_name for each in shown(sort="setting:lr", descending="1")["rows"]]
    assert reverse == [*(f"s-{index}" for index in range(12)), "odd"]
    assert [each.shown_name for each in shown(sort="other")["rows"]] == [each.shown_name for each in found["rows"]]
    axes = found["axes"]
    assert [axis.title for axis in axes.axes] == ["lr", "opt", "best loss"]
    assert (len(axes.lines), axes.lines[-1].name, axes.lines[-1].grade) == (11, "s-1", 0)
    assert "lr 0.1, opt adam, best loss 0.1" in axes.lines[-1].text


def test_a_program_in_the_comparison_is_short() -> None:
    jobs = {
        f"team/{rate}": trial(str(rate), "{}", 1.0, options=["-c", "print()\n" * 99 + str(rate)]) for rate in (1, 2)
    }
    found = comparison_of(jobs, Choice(()))
    (program,) = found["columns"][4:]
    assert [each.text(program) for each in found["rows"]] == [
        f"print() print() print()…rint() print() print() {rate}" for rate in (1, 2)
    ]


def test_the_script_of_the_curves_is_that_of_npm_and_has_its_licence_in_the_wheel() -> None:
    expected = {
        "uPlot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
        "uPlot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    }
    assert {name: hashlib.sha256((STATIC / name).read_bytes()).hexdigest() for name in expected} == expected
    assert "MIT License" in (STATIC / "uPlot-LICENSE.txt").read_text()
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    assert all(name in notices for name in (*expected, "uPlot-LICENSE.txt"))


numbers = st.floats() | st.integers() | st.text(max_size=20) | st.booleans()


@given(st.lists(st.tuples(numbers, numbers, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=20))
def test_each_line_of_any_parameters_is_inside_the_picture(values: list[tuple[Any, Any, float]]) -> None:
    made = parallel_axes(
        ["a", "b", "loss"], {str(index): each for index, each in enumerate(values)}, is_lower_better=True
    )
    assert (made is None) == (len(values) < 3)
    points = re.findall(r"([-\w.]+),([-\w.]+)", " ".join(line.points for line in made.lines) if made else "")
    assert all(0 <= float(x) <= 960 and 0 <= float(y) <= 260 for x, y in points)
    assert len(points) == (3 * len(values) if made else 0)
