"""Progress reports: parsing, their effect on the status, and the claims of tokens."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob.api.constants import Phase, Role
from horovodjob.api.status import Best, HorovodJobStatus, Mode, Training
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.progress_report import (
    ProgressReport,
    TokenClaim,
    is_confirmed,
    is_current,
    may_report,
    parse_report,
    token_claim,
)
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.domain.status import Urgency, next_status, urgency
from horovodjob_operator.kube.requests.writer import status_dict
from unit.domain.fake_cluster import FakeCluster, training_job

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
FIRST, LAST = datetime.fromisoformat("2000-01-02"), datetime.fromisoformat("9999-12-30")
times = st.datetimes(FIRST, LAST, timezones=zones)
metric_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}", fullmatch=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
any_values = st.floats() | st.integers() | st.none()
values = st.fixed_dictionaries({"epoch": st.integers(0, 10**15), "value": finite})
reports = st.fixed_dictionaries(
    {"attempt": st.integers(1, 1000), "progress": st.floats(0, 1)},
    optional={
        "epoch": st.integers(0, 10**15),
        "stepsPerEpoch": st.integers(0, 10**15),
        "samplesPerSecond": st.floats(0, allow_infinity=False),
        "eta": times.map(lambda at: at.isoformat()),
        "metrics": st.dictionaries(metric_names | st.text(max_size=80), any_values, max_size=40),
        "history": st.lists(
            st.fixed_dictionaries(
                {"epoch": st.integers(0, 10**15), "time": times.map(lambda at: at.isoformat())},
                optional={"learningRate": finite, "metrics": st.dictionaries(metric_names, finite, max_size=32)},
            ),
            max_size=24,
        ),
        "monitor": metric_names,
        "modes": st.dictionaries(metric_names, st.sampled_from(["min", "max"]), max_size=32),
        "extremes": st.dictionaries(metric_names, st.fixed_dictionaries({"min": values, "max": values}), max_size=32),
        "unknown": st.text(),
    },
)
things = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(reports)
def test_the_stored_report_equals_the_written_one(body: dict[str, Any]) -> None:
    """Otherwise every reconciliation would see a changed status, and write it again."""
    report = parse_report(json.dumps(body).encode())
    status = HorovodJobStatus(phase=Phase.RUNNING, training=report.training(None))
    assert HorovodJobStatus.model_validate(json.loads(json.dumps(status_dict(status)))) == status


@given(st.binary(max_size=4096) | things.map(lambda thing: json.dumps(thing).encode()))
def test_any_posted_body_is_a_report_or_a_client_error(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_report(body), ProgressReport)


def test_a_metric_that_the_status_cannot_have_is_renamed_or_left_out_and_the_rest_of_the_report_stays() -> None:
    metrics = {
        "mAP@0.5 (val)": 0.5,
        "准确率": 0.7,
        "loss": 1,
        "x": float("nan"),
        "y": None,
        "z": True,
        "a b": 1,
        "a_b": 2,
    }
    report = parse_report(json.dumps({"attempt": 1, "progress": 0.5, "epoch": 3, "metrics": metrics}).encode())
    training = report.training(None)
    assert training.metrics == {"mAP_0.5_val": 0.5, "u51c6u786eu7387": 0.7, "loss": 1, "a_b": 2}
    assert (training.epoch, training.non_finite) == (3, ("x",))
    assert "metric 'mAP@0.5 (val)' is stored as mAP_0.5_val" in report.changes
    assert "metric 'x' is left out: it is NaN or infinite" in report.changes
    assert "metric 'a b' is left out: it would have the name of another metric, a_b" in report.changes


def test_the_history_names_the_metrics_that_were_nan_after_an_epoch() -> None:
    times = {"time": "2026-01-01T00:00:00Z"}
    entries = [
        {"epoch": 1, "metrics": {"loss": 1.5, "acc": 0.5}, **times},
        {"epoch": 2, "metrics": {"loss": float("nan"), "mAP@0.5": float("inf"), "acc": 0.6}, **times},
        {"epoch": 3, "metrics": {"acc": 0.7}, "nonFinite": ["loss"], **times},
    ]
    report = parse_report(json.dumps({"attempt": 1, "progress": 1, "history": entries}).encode())
    history = report.training(None).history
    assert [each.non_finite for each in history] == [None, ("loss", "mAP_0.5"), ("loss",)]
    assert [each.metrics for each in history] == [{"loss": 1.5, "acc": 0.5}, {"acc": 0.6}, {"acc": 0.7}]


def test_of_forty_metrics_the_losses_and_those_of_the_validation_are_stored() -> None:
    metrics = {f"m{number}": 1.0 for number in range(30)} | {f"val_m{number}": 1.0 for number in range(9)}
    metrics |= {"val_loss": 1.0, "mehr als möglich": 1.0}
    entry = {"epoch": 1, "time": "2026-01-01T00:00:00Z", "metrics": metrics}
    report = parse_report(json.dumps({"attempt": 1, "progress": 1, "metrics": metrics, "history": [entry]}).encode())
    assert len(report.metrics) == len(report.history[0].metrics) == 32
    assert {"val_loss", "val_m8"} <= report.metrics.keys()
    assert "metric 'm22' is left out: it is more than the 32 metrics of a status" in report.changes


@pytest.mark.parametrize(
    ("progress", "percent"), [(0, "0%"), (0.29, "29%"), (0.999, "99%"), (0.9999999, "99%"), (1, "100%")]
)
def test_a_job_is_at_100_percent_when_it_is_done_and_not_before(progress: float, percent: str) -> None:
    assert ProgressReport(attempt=1, progress=float(progress)).training(None).percent == percent


def training_after_report(cluster: FakeCluster, attempt: int, progress: float) -> Training | None:
    """The training status after a report."""
    observed = replace(cluster.observed, progress_report=ProgressReport(attempt=attempt, progress=progress))
    status, _ = next_status(JobContext(cluster.job, observed, cluster.now))
    assert urgency(cluster.status, status) is Urgency.COUNTS, "a report causes no immediate status write"
    cluster.job = cluster.job.model_copy(update={"status": status})
    return status.training


def test_only_the_current_attempt_changes_the_progress(running: FakeCluster) -> None:
    first = training_after_report(running, 1, 0.5)
    assert first is not None
    running.end_container("cifar-launcher", 1)
    running.reconcile(after=3)
    assert running.status.training == first
    assert training_after_report(running, 1, 0.6) == first
    second = training_after_report(running, 2, 0.1)
    assert second is not None
    assert second.percent == "10%"


def dice(attempt: int, scores: Mapping[int, float], stored: Training | None = None, **fields: Any) -> Training:
    """The status after a report of these scores by epoch."""
    entries = [
        {"epoch": epoch, "time": "2026-01-01T00:00:00Z", "metrics": {"dice": score}} for epoch, score in scores.items()
    ]
    body = {"attempt": attempt, "progress": 0.5, "history": entries, **fields}
    return parse_report(json.dumps(body).encode()).training(stored)


def trained(attempt: int, epochs: Iterable[int], stored: Training | None = None) -> Training:
    """The status after a report with these epochs of an attempt."""
    return dice(attempt, dict.fromkeys(epochs, attempt + 1 / 3), stored)


@given(st.integers(1, 3), st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_the_history_is_thinned_evenly_and_has_the_first_and_the_newest_epoch(first: int, steps: list[int]) -> None:
    """Reports come after some epochs each, and have the newest 24 of their attempt."""
    training, newest = None, first - 1
    for step in steps:
        newest += step
        training = trained(1, range(max(first, newest - 23), newest + 1), training)
        assert trained(1, range(max(first, newest - 23), newest + 1), training) == training, (
            "the same report changes it"
        )
    assert training is not None
    epochs = [entry.epoch for entry in training.history]
    assert (epochs[0], epochs[-1]) == (first, newest)
    assert len(epochs) <= 24
    distances = {later - earlier for earlier, later in pairwise(epochs[:-1])}
    assert len(distances) <= 1, "equal distances"
    assert newest - first + 1 <= 24 or len(epochs) > 12, "no more is left out than must be"


def test_the_history_continues_over_attempts_with_five_significant_digits() -> None:
    def scores(training: Training) -> dict[int, float]:
        return {entry.epoch: entry.metrics["dice"] for entry in training.history}

    first = trained(1, range(1, 6))
    assert scores(trained(2, [4, 5], first)) == {1: 1.3333, 2: 1.3333, 3: 1.3333, 4: 2.3333, 5: 2.3333}, "resumed"
    assert scores(trained(2, [4], first)) == {1: 1.3333, 2: 1.3333, 3: 1.3333, 4: 2.3333}, "5 is not reached yet"
    assert scores(trained(2, [1], first)) == {1: 2.3333}, "the training started again"
    assert scores(trained(2, [], first)) == scores(first), "no epoch is complete yet"


def ends(training: Training) -> tuple[tuple[int, float], tuple[int, float]]:
    known = training.extremes["dice"]
    return (known.min.epoch, known.min.value), (known.max.epoch, known.max.value)


def test_both_ends_of_a_metric_stay_when_the_history_loses_their_epochs() -> None:
    scores = dict.fromkeys(range(1, 101), 0.5) | {50: 0.9, 51: 0.1}
    training = None
    for newest in range(1, 101):
        training = dice(1, {epoch: scores[epoch] for epoch in range(max(1, newest - 23), newest + 1)}, training)
    assert training is not None
    assert not {50, 51} & {entry.epoch for entry in training.history}, "the history is thinned"
    assert ends(training) == ((51, 0.1), (50, 0.9))
    assert (training.extremes["dice"].mode, training.best) == (None, None), "nobody has said which end is the best"


def test_the_best_epoch_is_that_of_the_metric_and_the_mode_which_the_program_declares() -> None:
    training = dice(1, {1: 0.5, 2: 0.9, 3: 0.9}, monitor="dice", modes={"dice": "max"})
    assert training.best == Best(metric="dice", mode=Mode.MAX, value=0.9, epoch=2)
    unknown = dice(1, {1: 0.5}, monitor="dice")
    assert unknown.best == Best(metric="dice"), "without a mode, no end is the best"


def test_an_attempt_that_repeats_epochs_replaces_their_values() -> None:
    first = dice(1, {1: 0.5, 2: 0.6, 3: 0.9})
    assert ends(dice(2, {3: 0.7}, first)) == ((1, 0.5), (3, 0.7))
    assert ends(dice(2, {1: 0.4}, first)) == ((1, 0.4), (1, 0.4)), "the training started again"
    assert dice(2, {}, first).extremes == first.extremes, "no epoch is complete yet"


def test_a_program_that_resumes_reports_the_ends_of_its_whole_run() -> None:
    run = {"dice": {"min": {"epoch": 2, "value": 0.123456789}, "max": {"epoch": 40, "value": 0.95}}}
    training = dice(2, {60: 0.8}, dice(1, {41: 0.99}), extremes=run)
    assert ends(training) == ((2, 0.123456789), (40, 0.95)), "with all digits, and without an epoch that is lost"


def test_a_resumed_job_keeps_its_history_and_has_no_progress_before_its_next_report(running: FakeCluster) -> None:
    before = dice(1, {1: 0.5, 2: 0.6}, monitor="dice", modes={"dice": "max"})
    running.job = running.job.model_copy(update={"status": running.status.model_copy(update={"training": before})})
    running.edit_run_policy(suspend=True)
    running.reconcile()
    running.remove_terminating_pods()
    running.reconcile()
    running.edit_run_policy(suspend=False)
    running.start()
    after = running.status.training
    assert after is not None
    assert (after.history, after.percent, after.metrics) == (before.history, "0%", {})
    assert (after.best, after.extremes) == (before.best, before.extremes)


@pytest.mark.parametrize("phase", list(Phase))
def test_reports_are_accepted_while_the_attempt_runs(running: FakeCluster, phase: Phase) -> None:
    status = running.status.model_copy(update={"phase": phase})
    job = running.job.model_copy(update={"status": status})
    assert is_current(job, 1) is (phase in (Phase.STARTING, Phase.RUNNING))
    assert not is_current(job, 2)


@pytest.mark.parametrize(
    ("facts", "may"),
    [
        ({}, True),
        ({"is_terminating": True}, True),
        ({"owner_uid": "another"}, False),
        ({"index": 1}, True),
        ({"index": 2}, False),
        ({"role": Role.LAUNCHER}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_only_a_pod_that_can_host_rank_0_or_its_deputy_can_report(
    running: FakeCluster, facts: dict[str, Any], may: bool
) -> None:
    assert may_report(running.job, replace(running.pods["cifar-worker-0"], **facts)) is may


def token(claims: Any) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.c2ln"


CLAIMS = {
    "aud": ["horovodjob.dev/progress"],
    "exp": 1e9,
    "kubernetes.io": {"namespace": "team", "pod": {"name": "cifar-worker-0", "uid": "u1"}},
}
CLAIM = TokenClaim("team", "cifar-worker-0", "u1", 1e9)


@given(st.text() | things.map(token) | things.map(lambda thing: token(CLAIMS | {"kubernetes.io": thing})))
def test_an_invalid_token_has_no_claim(text: str) -> None:
    assert token_claim(token(CLAIMS)) == CLAIM
    assert token_claim(text) is None


REVIEW: dict[str, Any] = {
    "authenticated": True,
    "audiences": ["horovodjob.dev/progress"],
    "user": {
        "username": "system:serviceaccount:team:default",
        "extra": {
            "authentication.kubernetes.io/pod-name": ["cifar-worker-0"],
            "authentication.kubernetes.io/pod-uid": ["u1"],
        },
    },
}


@pytest.mark.parametrize(
    "lie",
    [
        lambda review: review.update(authenticated=False),
        lambda review: review.update(audiences=["https://kubernetes.default.svc"]),
        lambda review: review["user"].update(username="system:serviceaccount:other:default"),
        lambda review: review["user"].update(username="system:serviceaccount:team-2:default"),
        lambda review: review["user"]["extra"].update({"authentication.kubernetes.io/pod-uid": ["u2"]}),
        lambda review: review["user"]["extra"].pop("authentication.kubernetes.io/pod-name"),
        lambda review: review.clear(),
    ],
)
def test_a_claim_is_confirmed_only_if_the_review_matches_all_of_it(lie: Callable[[dict[str, Any]], Any]) -> None:
    review = json.loads(json.dumps(REVIEW))
    assert is_confirmed(CLAIM, review)
    lie(review)
    assert not is_confirmed(CLAIM, review)


def test_the_launcher_has_the_grace_period_of_the_ranks() -> None:
    job = training_job(worker={"template": {"spec": {"terminationGracePeriodSeconds": 120}}, "gpus": 0})
    pods = (worker_pod(job, 0, 1, ""), launcher_pod(job, 1, "", ""))
    assert [pod["spec"]["terminationGracePeriodSeconds"] for pod in pods] == [120, 120]
    assert "terminationGracePeriodSeconds" not in launcher_pod(training_job(), 1, "", "")["spec"]


def test_without_an_address_no_pod_gets_a_token() -> None:
    with_one, without = (worker_pod(training_job(), 0, 1, url)["spec"] for url in ("http://operator", ""))
    assert "serviceAccountToken" in json.dumps(with_one["volumes"])
    assert "serviceAccountToken" not in json.dumps(without["volumes"])
