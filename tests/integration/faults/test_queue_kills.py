"""The operator is killed before and after each write about a queue: no quota is lost, and no pod runs without it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.faults.operator_kills import Case, Lanes, Write, parallel_lanes
from integration.scenarios import run_next_attempt
from support.api_client import Api
from support.job_driver import Job
from support.kueue.definitions import API
from support.kueue.played_kueue import PlayedKueue
from support.kueue.queues import Queue, QueuedJob, QuotaRecorder, quota_violations
from support.operator_process import Operator

QUEUES: dict[str, Queue] = {}
"""By namespace: several runs share one, one after the other."""


@pytest.fixture(scope="module")
def lanes(
    api: Api,
    kueue: PlayedKueue,
    operator_access: Path,
    operator_process: Operator,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lanes]:
    def prepare(namespace: str) -> None:
        QUEUES[namespace] = Queue(api, namespace, 2)

    directory = tmp_path_factory.mktemp("queue-kills")
    with parallel_lanes(api, operator_access, operator_process, directory, prepare) as started:
        yield started


def submit(api: Api, namespace: str, name: str) -> Job:
    """Creates a job of the namespace's queue."""
    return QUEUES[namespace].submit(name)


def evicted_and_readmitted(job: Job) -> None:
    """A queue is stopped while its job runs, and started again."""
    assert isinstance(job, QueuedJob)
    queue = QUEUES[job.namespace]
    job.advance_to("Running")
    queue.add("gpus", stopPolicy="HoldAndDrain")
    job.wait_for_workload("QuotaReserved", status="False")
    queue.add("gpus")
    run_next_attempt(job)
    job.end("launcher", 0)
    job.wait("Succeeded")
    job.wait_for_workload("Finished", reason="Succeeded")


def test_a_job_keeps_to_its_quota_wherever_the_operator_is_killed(lanes: Lanes, api: Api) -> None:
    recorders = QuotaRecorder(api, f"{API}/workloads"), QuotaRecorder(api, "/api/v1/pods")
    for recorder in recorders:
        recorder.start()
    case = Case(submit, evicted_and_readmitted)
    undisturbed = lanes.run(case)
    running = undisturbed.writes.index(Write("PATCH horovodjobs Running"))
    # The other writes before are those of a job without a queue, where each of them has its kills.
    early = [write for write in undisturbed.writes[:running] if "workloads" in write.text]
    differences = lanes.differences(case, undisturbed, [*early, *undisturbed.writes[running:]])
    for recorder in recorders:
        recorder.end()
    assert all(recorder.versions for recorder in recorders)
    if differences := [*differences, *quota_violations(*recorders)]:
        pytest.fail("\n".join(differences), pytrace=False)
