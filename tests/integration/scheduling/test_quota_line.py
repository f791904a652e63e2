"""Jobs that share a ResourceQuota: they start one after the other, with all pods or none."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.api_client import Api, wait_for
from support.job_driver import Job, has_ended, restricted_pod
from support.operator_process import Operator

Submit = Callable[..., Job]
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterroles/horovodjob-operator"


class CountedQuota:
    """A quota of pods with the real controller, which counts pods that end and are deleted."""

    def __init__(self, api: Api, namespace: str, pods: int, **spec: Any) -> None:
        self._api, self._quotas = api, f"/api/v1/namespaces/{namespace}/resourcequotas"
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
        api.create(self._quotas, {**body, "spec": {"hard": {"pods": str(pods)}, **spec}})
        wait_for("the quota to be counted", lambda: self.status.get("used"))

    @property
    def status(self) -> Any:
        return self._api.get(f"{self._quotas}/few").get("status", {})

    def change(self, pods: int) -> None:
        self._api.patch(f"{self._quotas}/few", {"spec": {"hard": {"pods": str(pods)}}})


def has_all_pods(job: Job) -> bool:
    pods = job.pods().values()
    return len(pods) == job.get()["spec"]["worker"]["replicas"] + 1 and not any(map(has_ended, pods))


def is_over_quota(job: Job) -> bool:
    ready = job.condition("Ready")
    return ready.get("reason") == "QuotaExceeded" and "exceeded quota: few" in ready["message"]


def submit_in_turn(submit_job: Submit, *names: str) -> list[Job]:
    """Jobs of four pods that are created one after the other; times of the API server are whole seconds."""
    jobs = []
    for name in names:
        job = submit_job(name, worker={"replicas": 3, "gpus": 0}, runPolicy={"cleanPodPolicy": "All"})
        created = datetime.fromisoformat(job.get()["metadata"]["creationTimestamp"])
        wait_for("the next second", lambda: datetime.now(UTC) >= created + timedelta(seconds=1))  # noqa: B023
        jobs.append(job)
    return jobs


def run_to_its_end(job: Job) -> None:
    job.schedule()
    job.run()
    job.end("launcher", 0)
    job.wait("Succeeded")


def test_jobs_that_share_a_quota_run_one_after_the_other(submit_job: Submit, api: Api, namespace: str) -> None:
    CountedQuota(api, namespace, 7)
    jobs = submit_in_turn(submit_job, *"dcba")
    for job in jobs:
        wait_for(f"all pods of {job.name}", lambda: has_all_pods(job))  # noqa: B023
        for other in jobs[jobs.index(job) + 1 :]:
            wait_for("the others to be without pods", lambda: not other.pods() and other.phase == "Queued")  # noqa: B023
        run_to_its_end(job)
    for job in jobs:
        status = job.status
        assert (status.get("errors", []), status.get("restarts", 0), status.get("preemptions", 0)) == ([], 0, 0)


def test_a_job_starts_when_there_is_room_whatever_made_it(submit_job: Submit, api: Api, namespace: str) -> None:
    quota = CountedQuota(api, namespace, 5)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(3):
        api.create(pods, restricted_pod(f"other-{number}"))
    (job,) = submit_in_turn(submit_job, "train")
    wait_for("the message", lambda: is_over_quota(job))
    wait_for("its pods to be deleted", lambda: not job.pods())
    quota.change(7)
    wait_for("all pods", lambda: has_all_pods(job))
    job.suspend()
    wait_for("its pods to be deleted", lambda: not job.pods())
    quota.change(6)
    job.suspend(False)
    wait_for("the message", lambda: is_over_quota(job))
    wait_for("its pods to be deleted", lambda: not job.pods())
    api.delete(f"{pods}/other-0", {"gracePeriodSeconds": 0})
    wait_for("the quota to be counted", lambda: quota.status["used"]["pods"] == "2")
    wait_for("all pods", lambda: has_all_pods(job))


def test_a_restarted_operator_keeps_the_order_of_the_jobs(
    submit_job: Submit, operator: Operator, api: Api, namespace: str
) -> None:
    quota = CountedQuota(api, namespace, 0)
    jobs = submit_in_turn(submit_job, "b", "a")
    for job in jobs:
        wait_for("the message", lambda: is_over_quota(job))  # noqa: B023
    operator.kill()
    quota.change(5)
    # A job that is larger than the whole quota blocks nobody, so the new limit must be there first.
    wait_for("the quota to be counted", lambda: quota.status["hard"]["pods"] == "5")
    jobs += submit_in_turn(submit_job, "0")
    operator.start()
    wait_for("all pods of the first", lambda: has_all_pods(jobs[0]))
    assert [(job.status["attempt"], len(job.pods())) for job in jobs[1:]] == [(1, 0)] * 2


@pytest.fixture
def without_quota_rights(api: Api) -> Iterator[None]:
    """The operator may not read quotas, as after an upgrade without its new rights."""
    rules = api.get(RIGHTS)["rules"]
    api.patch(RIGHTS, {"rules": [rule for rule in rules if rule["resources"] != ["resourcequotas"]]})
    yield
    api.patch(RIGHTS, {"rules": rules})


def test_without_the_right_to_read_quotas_the_jobs_run_one_after_the_other_too(
    without_quota_rights: None, submit_job: Submit, api: Api, namespace: str
) -> None:
    CountedQuota(api, namespace, 5)
    jobs = submit_in_turn(submit_job, "a", "b", "c")
    left = list(jobs)
    for _ in jobs:
        wait_for("all pods of a job", lambda: any(map(has_all_pods, left)))
        job = next(filter(has_all_pods, left))
        run_to_its_end(job)
        left.remove(job)
