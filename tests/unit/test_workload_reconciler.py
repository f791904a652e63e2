"""Jobs in queues, on API servers with and without the visibility API of Kueue."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from horovodjob.api.constants import Reason
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.kueue.kueue_api import KueueApi
from horovodjob_operator.kueue.workload_cache import WorkloadCache
from horovodjob_operator.kueue.workload_reconciler import WorkloadReconciler
from unit.domain.scheduling.queued_cluster import QueuedCluster, queued_job
from unit.served_api import client_of

PATH = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/gpus/pendingworkloads"


class VisibilityServer:
    """Reports the positions of Workloads, from 0, if it serves the API. It records its requests."""

    def __init__(self) -> None:
        self.positions: dict[str, int] | None = {}
        self.asked: list[str] = []
        self.failure: tuple[int, dict[str, Any]] | None = None

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.failure:
            return web.json_response(self.failure[1], status=self.failure[0])
        if self.positions is None:
            return web.json_response({"message": "not found"}, status=404)
        items = [{"metadata": {"name": name}, "positionInLocalQueue": at} for name, at in self.positions.items()]
        return web.json_response({"items": items})


@pytest.fixture
def server() -> VisibilityServer:
    return VisibilityServer()


@pytest.fixture
async def workload_reconciler(server: VisibilityServer) -> AsyncIterator[WorkloadReconciler]:
    async with client_of(server.answer) as client:
        yield WorkloadReconciler(WorkloadCache(), KueueApi(client))


@pytest.fixture
def waiting() -> QueuedCluster:
    """A job that Kueue has no room for."""
    cluster = QueuedCluster(queued_job())
    cluster.reconcile()
    cluster.make_wait()
    return cluster


def name(cluster: QueuedCluster) -> str:
    workload = cluster.workload
    assert workload is not None
    return workload.name


async def test_the_position_of_a_waiting_job_is_read_at_most_every_30_seconds(
    server: VisibilityServer, workload_reconciler: WorkloadReconciler, waiting: QueuedCluster
) -> None:
    server.positions = {"other": 0, name(waiting): 2}
    state = JobState(waiting.job, 1)
    due = await workload_reconciler.read_position(state, waiting.context)
    assert (state.queue_position, due.is_soon, due.at) == (3, True, waiting.now + timedelta(seconds=30))
    server.positions[name(waiting)] = 0
    waiting.wait(29)
    await workload_reconciler.read_position(state, waiting.context)
    await workload_reconciler.read_position(JobState(waiting.job, 1), waiting.context)
    assert (state.queue_position, server.asked) == (3, [PATH])
    waiting.wait(1)
    await workload_reconciler.read_position(state, waiting.context)
    assert (state.queue_position, server.asked) == (1, [PATH, PATH])


async def test_a_job_of_which_kueue_says_nothing_has_a_position(
    server: VisibilityServer, workload_reconciler: WorkloadReconciler
) -> None:
    cluster = QueuedCluster(queued_job())
    cluster.reconcile()
    server.positions = {name(cluster): 1}
    state = JobState(cluster.job, 1)
    await workload_reconciler.read_position(state, cluster.context)
    assert (state.queue_position, server.asked) == (2, [PATH])


async def test_a_cluster_without_positions_is_asked_again_after_minutes(
    server: VisibilityServer, workload_reconciler: WorkloadReconciler, waiting: QueuedCluster
) -> None:
    server.positions = None
    state = JobState(waiting.job, 1)
    for seconds in (0, 60, 200):
        waiting.wait(seconds)
        await workload_reconciler.read_position(state, waiting.context)
    assert (state.queue_position, server.asked) == (None, [PATH])


@pytest.mark.parametrize(
    "failure",
    [
        (503, {"message": "service unavailable"}),
        (404, {"message": "not found", "details": {"name": "gpus", "kind": "localqueue"}}),
    ],
    ids=["Kueue starts", "Kueue does not know the queue yet"],
)
async def test_positions_that_fail_for_a_moment_are_read_again_with_the_next_reading(
    server: VisibilityServer,
    workload_reconciler: WorkloadReconciler,
    waiting: QueuedCluster,
    failure: tuple[int, dict[str, Any]],
) -> None:
    server.positions, server.failure = {name(waiting): 0}, failure
    state = JobState(waiting.job, 1)
    due = await workload_reconciler.read_position(state, waiting.context)
    assert (state.queue_position, due.at) == (None, waiting.now + timedelta(seconds=30))
    server.failure = None
    waiting.wait(30)
    await workload_reconciler.read_position(state, waiting.context)
    assert state.queue_position == 1


async def test_an_admitted_job_has_no_position_and_costs_no_request(
    server: VisibilityServer, workload_reconciler: WorkloadReconciler, waiting: QueuedCluster
) -> None:
    state = JobState(waiting.job, 1, queue_position=4)
    waiting.admit()
    await workload_reconciler.read_position(state, waiting.context)
    assert (state.queue_position, server.asked) == (None, [])


async def test_an_invalid_label_is_reported_once_and_tried_again_with_a_delay(
    workload_reconciler: WorkloadReconciler, waiting: QueuedCluster
) -> None:
    waiting.label(max_exec_time_seconds="1h")
    state = JobState(waiting.job, 1)
    dues = [await workload_reconciler.execute(state, waiting.context) for _ in range(3)]
    assert [due.is_soon for due in dues] == [True, False, False]
    assert all(due.at and due.at > waiting.now for due in dues)
    assert state.queue_problem is not None
    assert "it must be a number of seconds above 0" in state.queue_problem.message


class PrebuiltWorkload:
    """A Workload of MultiKueue, which `meanwhile` changes or deletes once between a read and a write of it."""

    def __init__(self, meanwhile: str) -> None:
        self._meanwhile = meanwhile
        self.metadata: dict[str, Any] = {"name": "prebuilt", "namespace": "team", "uid": "w", "resourceVersion": "1"}

    async def answer(self, request: web.Request) -> web.Response:
        meanwhile = self._meanwhile
        if request.method == "PATCH":
            self._meanwhile = ""
            if meanwhile == "deleted":
                details = {"message": "not found", "details": {"name": "prebuilt"}}
                return web.json_response(details, status=404)
            changes = (await request.json())["metadata"]
            if changes.pop("resourceVersion") != self.metadata["resourceVersion"]:
                return web.json_response({"message": "the object has been modified", "reason": "Conflict"}, status=409)
            self.metadata |= changes | {"resourceVersion": "3"}
            return web.json_response({"metadata": self.metadata})
        read = dict(self.metadata)
        if meanwhile == "changed":
            self.metadata["resourceVersion"] = "2"
        return web.json_response({"metadata": read})


@pytest.mark.parametrize("meanwhile", ["changed", "deleted"])
async def test_a_prebuilt_workload_that_changes_while_it_is_adopted_is_adopted_at_once_again(meanwhile: str) -> None:
    cluster, prebuilt = QueuedCluster(queued_job()), PrebuiltWorkload(meanwhile)
    cluster.label(prebuilt_workload_name="prebuilt")
    state = JobState(cluster.job, 1)
    async with client_of(prebuilt.answer) as client:
        workloads = WorkloadCache()
        workload_reconciler = WorkloadReconciler(workloads, KueueApi(client))
        first = await workload_reconciler.execute(state, cluster.context)
        assert (first.is_soon, workloads.of_job(cluster.job.metadata.uid)) == (True, None)
        await workload_reconciler.execute(state, cluster.context)
    adopted = workloads.of_job(cluster.job.metadata.uid)
    assert adopted is not None
    assert adopted.name == "prebuilt"


async def test_a_webhook_that_does_not_answer_ends_no_reconciliation() -> None:
    async def refuse(request: web.Request) -> web.Response:
        message = 'Internal error occurred: failed calling webhook "mworkload.kb.io": connection refused'
        return web.json_response({"message": message}, status=500)

    cluster = QueuedCluster(queued_job())
    cluster.reconcile()
    cluster.raw = None
    state = JobState(cluster.job, 1)
    async with client_of(refuse) as client:
        workload_reconciler = WorkloadReconciler(WorkloadCache(), KueueApi(client))
        delays = []
        for _ in range(8):
            due = await workload_reconciler.execute(state, cluster.context)
            assert due.at
            delays.append((due.at - cluster.now).total_seconds())
            cluster.wait(delays[-1])
        assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30]
        assert state.queue_problem
        assert (state.queue_problem.reason, state.queue_problem.is_stalled) == (Reason.CREATION_FAILED, False)
        assert "mworkload.kb.io" in state.queue_problem.message
        assert "keeps trying" in state.queue_problem.message
        cluster.reconcile()
        cluster.admit()
        cluster.run_to_running()
        cluster.set_conditions(PodsReady=(False, "WaitForStart", ""))
        due = await workload_reconciler.execute(JobState(cluster.job, 1), cluster.context)
        assert (due.at, due.is_soon) == (cluster.now + timedelta(seconds=0.5), False)
