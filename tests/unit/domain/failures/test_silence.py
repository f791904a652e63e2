"""Jobs whose rank 0 reports no more: when the condition says so, and that no attempt ends because of it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from horovodjob.api.constants import ConditionType, Phase
from horovodjob_operator.controller.jobs.heartbeats import Heartbeats
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.domain.events import events_between
from horovodjob_operator.domain.silence import Heartbeat, Silence, silence
from horovodjob_operator.domain.stall_report import StallReport
from unit.domain.failures.test_stalls import MESSAGE, progressing, report
from unit.domain.fake_cluster import NOON, FakeCluster, running_cluster

WITHIN = 300.0
TEXT = (
    "no report from rank 0 (worker 0, node node-0) since 12:00:00Z: its process, its pod or the network to the "
    "operator has failed"
)


@pytest.fixture
def running() -> FakeCluster:
    cluster = running_cluster(runPolicy={"progressDeadlineSeconds": 60})
    cluster.update_pod("cifar-worker-0", node="node-0")
    return cluster


def heartbeat(cluster: FakeCluster, **facts: Any) -> Heartbeat:
    """The last report of rank 0, at the beginning of the time in which this process listened."""
    pod = cluster.pods["cifar-worker-0"]
    return replace(Heartbeat(1, pod.uid, NOON, receiving_seconds=0, next_within=WITHIN), **facts)


def found(cluster: FakeCluster, last: Heartbeat | None, *others: Heartbeat, listened: float = WITHIN) -> Silence | None:
    return silence(cluster.job, last, others, cluster.pods.values(), listened)


def test_an_overdue_report_is_a_silence_of_its_pod(running: FakeCluster) -> None:
    assert found(running, heartbeat(running), listened=WITHIN - 1) is None
    assert found(running, heartbeat(running)) == Silence(running.pods["cifar-worker-0"], NOON)


def suspend(cluster: FakeCluster) -> None:
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()


def resume(cluster: FakeCluster) -> None:
    suspend(cluster)
    cluster.edit_run_policy(suspend=False)
    cluster.reconcile()
    cluster.start()


def end_attempt(cluster: FakeCluster) -> None:
    cluster.end_container("cifar-launcher", 1)
    cluster.reconcile(after=60)


NO_SILENCES: dict[str, tuple[dict[str, Any], Callable[[FakeCluster], object]]] = {
    "a training that has ended, while its program continues": ({"next_within": 0}, lambda _: None),
    "another attempt": ({"attempt": 2}, lambda _: None),
    "a suspended job": ({}, suspend),
    "a job that was suspended meanwhile": ({}, resume),
    "an attempt that has ended": ({}, end_attempt),
    "a rank 0 that is in another pod now": ({"pod_uid": "another"}, lambda _: None),
    "a pod that terminates": ({}, lambda cluster: cluster.update_pod("cifar-worker-0", is_terminating=True)),
}


@pytest.mark.parametrize("case", NO_SILENCES)
def test_these_are_no_silences(running: FakeCluster, case: str) -> None:
    facts, act = NO_SILENCES[case]
    last = heartbeat(running, **facts)
    act(running)
    assert found(running, last) is None


def test_a_program_that_has_never_reported_to_this_process_is_not_silent(running: FakeCluster) -> None:
    """Such as one without the trainer, or after a restart of the operator or a change of its leader."""
    assert found(running, None, listened=10**6) is None


def test_if_no_other_job_is_heard_either_the_network_to_this_process_has_failed(running: FakeCluster) -> None:
    last, silent = heartbeat(running), heartbeat(running, receiving_seconds=WITHIN / 2 - 1)
    assert found(running, last, silent, silent) is None
    assert found(running, last, silent, heartbeat(running, receiving_seconds=WITHIN - 20)) is not None


def test_a_silence_makes_the_progress_unknown_and_ends_nothing(running: FakeCluster) -> None:
    running.stall_report = StallReport(attempt=1, stall=None)
    running.reconcile()
    before = running.status
    running.silence = Silence(running.pods["cifar-worker-0"], NOON)
    running.reconcile(after=7200)
    assert running.status.phase is Phase.RUNNING
    assert progressing(running) == ("Unknown", "NoReports", TEXT)
    assert events_between(running.job, before, running.status) == ()
    ready = running.condition(ConditionType.READY)
    assert ready.status == "True"

    running.update_pod("cifar-worker-0", has_unready_node=True)
    running.silence = Silence(running.pods["cifar-worker-0"], NOON)
    running.reconcile()
    assert progressing(running) == ("Unknown", "NoReports", f"{TEXT}, and node node-0 does not report to Kubernetes")

    running.silence = None
    running.reconcile()
    assert progressing(running) == ("True", "StepsCompleted", "the training completes steps")


def test_a_stall_stays_known_when_its_reports_end_and_a_deputy_knows_more(running: FakeCluster) -> None:
    running.update_pod("cifar-worker-1", node="node-1")
    running.stall_report, running.silence = report(), Silence(running.pods["cifar-worker-0"], NOON)
    running.reconcile()
    assert progressing(running) == ("False", "TrainingStalled", f"{MESSAGE}; {TEXT}")
    running.stall_report = report().model_copy(update={"is_deputy": True})
    running.reconcile()
    assert progressing(running) == ("False", "TrainingStalled", MESSAGE)


def test_the_time_in_which_the_process_cannot_listen_is_not_counted(running: FakeCluster) -> None:
    """A clock that jumps and a process that was stopped: neither is time in which reports could arrive."""
    heartbeats, state = Heartbeats(), JobState(running.job, version=1)
    pods = running.pods.values()
    heartbeats.record(state, running.pods["cifar-worker-0"].uid, 1, WITHIN, NOON)
    assert heartbeats.due(state, NOON + timedelta(days=9)) == NOON + timedelta(days=9, seconds=WITHIN + 1)
    assert heartbeats.silence(state, pods) is None
    heartbeats.receiving_seconds += WITHIN
    assert heartbeats.silence(state, pods) == Silence(running.pods["cifar-worker-0"], NOON)
    heartbeats.record(state, running.pods["cifar-worker-0"].uid, 1, None, NOON)  # a report of the rank itself
    assert heartbeats.silence(state, pods) is None
    assert heartbeats.seconds_since(state, 1) == 0
    assert heartbeats.seconds_since(state, 2) == float("inf")


def test_listening_ends_while_the_event_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 1.0, 500.0, 500.0])
    heartbeats = Heartbeats()

    async def sleep(_: float) -> None:
        if heartbeats.receiving_seconds == 3:
            raise asyncio.CancelledError

    module = "horovodjob_operator.controller.jobs.heartbeats"
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(f"{module}.asyncio", SimpleNamespace(sleep=sleep))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(heartbeats.run())
    assert heartbeats.receiving_seconds == 3
