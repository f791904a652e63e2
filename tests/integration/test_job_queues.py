"""What a queue such as Kueue does with a job: admits it to nodes of its choice, takes them back, reads its status."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from api.client import JOBS, Api, Object, job, wait_for
from integration.job_driver import Job

Submit = Callable[..., Job]
WORKERS = ("worker-0", "worker-1")
MEMBERS = ("launcher", *WORKERS)
QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}
WISH = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "mine", "operator": "Exists"}]}


class Queue:
    """Plays the queue's part: one update to admit, one to take back."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def admit(self, flavour: str) -> None:
        """Lets the job run on nodes of a flavour; labels for the pods come with it."""
        spec: dict[str, Any] = {
            "nodeSelector": {**WISH["nodeSelector"], "flavour": flavour},  # type: ignore[dict-item]
            "tolerations": [*WISH["tolerations"], {"key": flavour, "operator": "Exists"}],
            "worker": {"template": {"metadata": {"labels": {"kueue.x-k8s.io/podset": "worker"}}}},
            "runPolicy": {"suspend": False},
        }
        self.job.api.patch(self.job.path, {"spec": spec})

    def evict(self) -> None:
        """Suspends the job and restores what the user wrote."""
        spec = {**WISH, "nodeSelector": {"disk": "ssd", "flavour": None}}
        self.job.api.patch(
            self.job.path, {"spec": {**spec, "worker": {"template": None}, "runPolicy": {"suspend": True}}}
        )

    @property
    def active(self) -> bool:
        """Whether any pod still holds what the queue gave."""
        statuses: Object = self.job.status.get("replicaStatuses", {})
        return any(one["active"] for one in statuses.values())

    def has_condition(self, condition: str) -> bool:
        return bool(self.job.condition(condition).get("status") == "True")


@pytest.fixture
def queued(api: Api, namespace: str, submit_job: Submit) -> Job:
    """A job of the queue: suspended, as the queue's webhook makes it."""
    body = job("train", runPolicy={"suspend": True}, **WISH)
    body["metadata"]["labels"] = QUEUE
    made = api.create(JOBS.format(namespace), body)
    return Job(api, namespace, "train", made["metadata"]["uid"])


def flavours(job: Job, roles: Iterable[str] = MEMBERS) -> set[str]:
    """The flavours that these pods of the job, which are there, want of their nodes."""
    pods = job.wait_for_pods(roles)
    return {pods[role]["spec"]["nodeSelector"]["flavour"] for role in roles}


@pytest.mark.parametrize("phase", ["Queued", "Starting", "Running", "Restarting"])
def test_a_queue_admits_evicts_and_readmits_a_job(queued: Job, phase: str) -> None:
    queue = Queue(queued)
    queued.wait("Suspended")
    assert not queue.active
    queue.admit("spot")
    queued.advance_to(phase)
    assert flavours(queued, WORKERS if phase == "Restarting" else MEMBERS) == {"spot"}
    wait_for("its pods to be counted", lambda: queue.active)
    queue.evict()
    queued.wait("Suspended")
    wait_for("nothing to be held any more", lambda: not queue.active and queued.pods() == {})
    assert queue.has_condition("Suspended")
    assert "startTime" not in queued.status
    assert queued.get()["spec"]["nodeSelector"] == WISH["nodeSelector"]
    restarts = queued.status["restarts"]
    queue.admit("lasting")
    queued.advance_to("Running")
    assert flavours(queued) == {"lasting"}
    wait_for("the ranks to run", lambda: queue.has_condition("Running"))
    queued.end("launcher", 0)
    queued.wait("Succeeded")
    assert queue.has_condition("Succeeded")
    assert (queued.status["restarts"], queued.status["preemptions"]) == (restarts, 0)


def test_labels_and_tolerations_of_the_queue_reach_the_pods(queued: Job) -> None:
    queued.wait("Suspended")
    Queue(queued).admit("spot")
    pods = queued.wait_for_pods()
    assert {pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for pod in pods.values()} == {"gpus"}
    assert pods["worker-1"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
    keys = {toleration["key"] for toleration in pods["launcher"]["spec"]["tolerations"]}
    assert {"mine", "spot"} <= keys


def test_a_finished_job_releases_its_quota(queued: Job) -> None:
    queue = Queue(queued)
    queued.wait("Suspended")
    queue.admit("spot")
    queued.advance_to("Succeeded")
    wait_for("nothing to be held any more", lambda: not queue.active)
