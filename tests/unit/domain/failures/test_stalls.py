"""Trainings that make no progress: the condition Progressing, the restart at the deadline, and its end."""

import json
from typing import Any

import pytest

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason, Role
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.progress_report import ProgressReport
from horovodjob_operator.domain.resources.parts.environment import environment
from horovodjob_operator.domain.stall_report import StallReport, parse_stall
from horovodjob_operator.domain.status import Urgency, urgency
from unit.domain.fake_cluster import FakeCluster, running_cluster, training_job

STALL: dict[str, Any] = {
    "since": "2026-11-26T14:32:10Z",
    "usualSeconds": 0.8,
    "blamed": [{"rank": 5, "host": "cifar-worker-1", "text": "is in input, at load in train.py:31"}],
    "others": "the other 7 ranks wait in the exchange",
    "steps": 120,
}
MESSAGE = (
    "no step since 14:32:10Z (usual: 0.8 s): rank 5 (worker 1, node node-1) is in input, at load in train.py:31; the "
    "other 7 ranks wait in the exchange"
)


def report(attempt: int = 1, **fields: Any) -> StallReport:
    found = parse_stall(json.dumps({"attempt": attempt, "stall": STALL | fields}).encode())
    assert found is not None
    return found


@pytest.fixture
def running() -> FakeCluster:
    cluster = running_cluster(runPolicy={"progressDeadlineSeconds": 600})
    cluster.update_pod("cifar-worker-1", node="node-1")
    return cluster


def progressing(cluster: FakeCluster) -> tuple[str, str, str] | None:
    condition = cluster.status.condition(ConditionType.PROGRESSING)
    return (condition.status, condition.reason, condition.message) if condition else None


def test_a_stall_is_a_condition_that_names_rank_worker_and_node_until_steps_go_on(running: FakeCluster) -> None:
    before = running.status
    assert progressing(running) is None
    running.stall_report = report()
    running.reconcile()
    assert running.status.phase is Phase.RUNNING
    assert progressing(running) == ("False", "TrainingStalled", MESSAGE)
    assert urgency(before, running.status) is Urgency.COUNTS, "a rank that reports stalls in turns floods nothing"
    (event,) = events_between(running.job, before, running.status)
    assert (event.reason, event.note, event.is_warning) == (EventReason.TRAINING_STALLED, MESSAGE, True)

    stalled = running.status
    running.stall_report = StallReport(attempt=1, stall=None)
    running.reconcile()
    assert progressing(running) == ("True", "StepsCompleted", "the training completes steps")
    assert events_between(running.job, stalled, running.status) == ()


def test_ranks_of_a_worker_at_the_same_place_are_named_together_and_a_thousand_ranks_fit(running: FakeCluster) -> None:
    text = "is computing, or reads its next batch, at " + "f" * 250
    blamed = [{"rank": 1000 + n, "host": f"cifar-worker-{n // 4}", "text": text} for n in range(8)]
    running.stall_report = report(blamed=blamed, others="504 more ranks are not in the exchange" + "." * 900)
    running.reconcile()
    condition = progressing(running)
    assert condition is not None
    assert f"ranks 1004, 1005, 1006, 1007 (worker 1, node node-1): each {text}; 504 more ranks" in condition[2]
    assert len(condition[2]) <= 2048


def test_a_new_operator_process_keeps_what_the_status_says(running: FakeCluster) -> None:
    running.stall_report = report()
    running.reconcile()
    running.stall_report = None
    running.reconcile()
    assert progressing(running) == ("False", "TrainingStalled", MESSAGE)
    running.progress_report = ProgressReport(attempt=1, progress=0.5)
    running.reconcile()
    assert progressing(running) == ("True", "StepsCompleted", "the training completes steps")


def test_the_report_of_an_earlier_attempt_says_nothing(running: FakeCluster) -> None:
    running.stall_report = report(attempt=2)
    running.reconcile()
    assert progressing(running) is None


def test_at_the_deadline_the_attempt_ends_and_the_job_restarts(running: FakeCluster) -> None:
    running.stall_report = report(isOver=True)
    running.reconcile()
    status, message = running.status, f"{MESSAGE} (runPolicy.progressDeadlineSeconds is 600)"
    assert (status.phase, status.attempt, status.restarts) == (Phase.RESTARTING, 2, 1)
    error = status.errors[-1]
    assert (error.reason, error.pod, error.node) == ("ProgressDeadlineExceeded", "cifar-worker-1", "node-1")
    assert (error.message, error.steps) == (message, 120)
    assert progressing(running) == ("False", "ProgressDeadlineExceeded", message)


def test_a_report_of_the_end_is_ignored_without_a_deadline() -> None:
    cluster = running_cluster()
    cluster.stall_report = report(isOver=True)
    cluster.reconcile()
    assert cluster.status.phase is Phase.RUNNING


def test_a_suspended_job_has_no_condition(running: FakeCluster) -> None:
    running.stall_report = report()
    running.reconcile()
    running.edit_run_policy(suspend=True)
    running.reconcile()
    assert progressing(running) is None


def test_an_end_at_the_deadline_while_there_was_no_operator_is_known_by_the_log(running: FakeCluster) -> None:
    sentence = "no step since 14:32:10Z: rank 1 on cifar-worker-1 is stopped; the attempt ends after 600 s"
    log = f"[1,0]<stderr>:horovodjob: ProgressDeadlineExceeded: {sentence}\nmpirun noticed that process rank 0 ended"
    running.end_container("cifar-launcher", 137, message=log)
    running.reconcile(after=60)
    assert (running.status.phase, running.status.restarts) == (Phase.RESTARTING, 1)
    assert running.status.errors[-1].reason == Reason.PROGRESS_DEADLINE_EXCEEDED
    assert sentence in running.status.errors[-1].message


EVICTED = "evicted"


@pytest.mark.parametrize(("limit", "is_heard"), [(3, True), (1000, False)])
@pytest.mark.parametrize(
    ("steps", "fails"),
    [
        ([120, 120, 100, 120], True),
        ([0, 0, 0, 0], True),
        ([120, EVICTED, 0, EVICTED, 120, 120], True),
        ([120, 121, 120, 120], False),
        ([120, 120, 120, 130], False),
        ([120, 120, None, 120], False),
        ([120, 120, 120, EVICTED], False),
    ],
)
def test_three_restarts_without_a_new_step_end_the_job(
    steps: list[Any], fails: bool, is_heard: bool, limit: int
) -> None:
    """With the default limit of restarts too, and if there is no operator when the attempts end."""
    cluster = FakeCluster(training_job(runPolicy={"progressDeadlineSeconds": 600, "backoffLimit": limit}))
    for attempt, step in enumerate(steps, 1):
        assert cluster.status.phase is not Phase.FAILED
        cluster.start()
        if step == EVICTED:
            cluster.update_pod("cifar-worker-1", phase="Failed", reason="Evicted", disruption="EvictionByEvictionAPI")
        elif is_heard:
            cluster.stall_report = report(attempt, steps=step, isOver=True)
        else:
            since = f"a step after step {step}" if step else "a step" if step is None else "a first step"
            log = "horovodjob: ProgressDeadlineExceeded: no step since 14:32:10Z; the attempt ends after 600 s without"
            cluster.end_container("cifar-launcher", 137, message=f"{log} {since}")
            cluster.wait(60)
        cluster.reconcile()
        cluster.remove_terminating_pods()
        cluster.wait(3600)
    failed = cluster.status.condition(ConditionType.FAILED)
    assert (cluster.status.phase is Phase.FAILED) is (fails or (limit == 3 and EVICTED not in steps))
    if fails:
        assert failed is not None
        assert failed.reason == "ProgressDeadlineExceeded"
        assert "3 restarts in a row have completed no new step" in failed.message


def test_foreign_text_reaches_the_status_on_one_line_without_escapes(running: FakeCluster) -> None:
    running.stall_report = report(blamed=[{"rank": 0, "host": "other\n", "text": "\x1b[2Jis\nin\tinput"}])
    running.reconcile()
    condition = progressing(running)
    assert condition is not None
    assert condition[2].isprintable()
    assert "rank 0 (other) [2Jis in input" in condition[2]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"since": 5}, "stall.since: Input should be a valid datetime"),
        ({"blamed": [{"rank": -1, "text": ""}]}, "stall.blamed.0.rank: Input should be greater than or equal to 0"),
        ({"others": "x" * 2000}, "stall.others: Value should have at most 1000 items"),
    ],
)
def test_a_malformed_report_is_refused_with_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        report(**fields)


def test_progress_is_no_stall() -> None:
    assert parse_stall(b'{"attempt": 1, "progress": 0.5}') is None
    assert parse_stall(b"[") is None


@pytest.mark.parametrize(("seconds", "horovod"), [(60, "3660"), (7200, "7260")])
def test_ranks_know_the_deadline_and_horovod_ends_later(seconds: int, horovod: str) -> None:
    job = training_job(runPolicy={"progressDeadlineSeconds": seconds})
    found = {each["name"]: each.get("value") for each in environment(job, Role.WORKER)}
    assert found["HOROVODJOB_PROGRESS_DEADLINE"] == str(seconds)
    assert found["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] == horovod
    assert "HOROVODJOB_PROGRESS_DEADLINE" not in {each["name"] for each in environment(training_job(), Role.WORKER)}
