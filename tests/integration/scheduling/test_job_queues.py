"""Job queues that suspend and resume jobs: admission, eviction, and the status that they read."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from support.api_client import JOBS, Api, Object, job, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]
WORKERS = ("worker-0", "worker-1")
MEMBERS = ("launcher", *WORKERS)
WISH = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "mine", "operator": "Exists"}]}


class Queue:
    """Acts as the queue: one update to admit a job, one to evict it."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def admit(self, flavour: str) -> None:
        """Admits the job to nodes of a flavour, with labels for its pods."""
        spec: dict[str, Any] = {
            "nodeSelector": {**WISH["nodeSelector"], "flavour": flavour},  # type: ignore[dict-item]
            "tolerations": [*WISH["tolerations"], {"key": flavour, "operator": "Exists"}],
            "worker": {"template": {"metadata": {"labels": {"example.com/podset": "worker"}}}},
            "runPolicy": {"suspend": False},
        }
        self.job.api.patch(self.job.path, {"spec": spec})

    def evict(self) -> None:
        """Suspends the job and restores the user's spec."""
        spec = {**WISH, "nodeSelector": {"disk": "ssd", "flavour": None}}
        self.job.api.patch(
            self.job.path, {"spec": {**spec, "worker": {"template": None}, "runPolicy": {"suspend": True}}}
        )

    @property
    def active(self) -> bool:
        """Whether a pod still uses the quota."""
        statuses: Object = self.job.status.get("replicaStatuses", {})
        return any(one["active"] for one in statuses.values())

    def has_condition(self, condition: str) -> bool:
        return bool(self.job.condition(condition).get("status") == "True")


@pytest.fixture
def queued_job(api: Api, namespace: str, submit_job: Submit) -> Job:
    """A job of the queue, which the queue's webhook suspends on creation."""
    made = api.create(JOBS.format(namespace), job("train", runPolicy={"suspend": True}, **WISH))
    return Job(api, namespace, "train", made["metadata"]["uid"])


def flavours(job: Job, roles: Iterable[str] = MEMBERS) -> set[str]:
    """The flavours in the node selectors of these pods."""
    pods = job.wait_for_pods(roles)
    return {pods[role]["spec"]["nodeSelector"]["flavour"] for role in roles}


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting"])
def test_a_queue_admits_evicts_and_readmits_a_job(queued_job: Job, phase: str) -> None:
    queue = Queue(queued_job)
    queued_job.wait("Suspended")
    assert not queue.active
    queue.admit("spot")
    queued_job.advance_to(phase)
    assert flavours(queued_job, WORKERS if phase == "Restarting" else MEMBERS) == {"spot"}
    wait_for("its pods to be counted", lambda: queue.active)
    queue.evict()
    queued_job.wait("Suspended")
    wait_for("the quota to be released", lambda: not queue.active and queued_job.pods() == {})
    assert queue.has_condition("Suspended")
    assert "startTime" not in queued_job.status
    assert queued_job.get()["spec"]["nodeSelector"] == WISH["nodeSelector"]
    restarts = queued_job.status["restarts"]
    queue.admit("lasting")
    queued_job.advance_to("Running")
    assert flavours(queued_job) == {"lasting"}
    wait_for("the ranks to run", lambda: queue.has_condition("Running"))
    queued_job.end("launcher", 0)
    queued_job.wait("Succeeded")
    assert queue.has_condition("Succeeded")
    assert (queued_job.status["restarts"], queued_job.status["preemptions"]) == (restarts, 0)


def test_labels_and_tolerations_of_the_queue_reach_the_pods(queued_job: Job) -> None:
    queued_job.wait("Suspended")
    Queue(queued_job).admit("spot")
    pods = queued_job.wait_for_pods()
    assert pods["worker-1"]["metadata"]["labels"]["example.com/podset"] == "worker"
    keys = {toleration["key"] for toleration in pods["launcher"]["spec"]["tolerations"]}
    assert {"mine", "spot"} <= keys


def test_a_finished_job_releases_its_quota(queued_job: Job) -> None:
    queue = Queue(queued_job)
    queued_job.wait("Suspended")
    queue.admit("spot")
    queued_job.advance_to("Succeeded")
    wait_for("the quota to be released", lambda: not queue.active)
