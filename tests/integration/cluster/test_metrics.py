"""The operator's metrics and health endpoints: counters, durations, and the lifetime of series."""

from collections.abc import Callable
from datetime import datetime

import pytest

from support.api_client import JOBS, Api, ApiError, Object, wait_for
from support.control_plane.operator_control_plane import make_namespace
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]
NAMES = ("queue", "start", "run")


@pytest.fixture
def restarted_operator(api: Api, operator: Operator) -> Operator:
    """An operator that has just started, in a cluster without jobs: all counts are those of the test."""
    operator.kill()

    def others() -> list[Object]:
        found: list[Object] = api.get("/apis/horovodjob.dev/v1beta1/horovodjobs")["items"]
        for one in found:  # of earlier tests: the deletion of their namespaces takes longer
            namespace = one["metadata"]["namespace"]
            try:
                api.delete(f"{JOBS.format(namespace)}/{one['metadata']['name']}")
            except ApiError:
                # The namespace was deleted while a restarted API server did not list the resource, and the job was not.
                if api.find(f"/api/v1/namespaces/{namespace}") is None:
                    make_namespace(api, namespace)
        return found

    wait_for("no jobs", lambda: not others())
    return operator.start()


def durations(operator: Operator) -> dict[str, float]:
    """The number of observed durations of all namespaces."""
    counted = {name: operator.samples(f"horovodjob_{name}_duration_seconds_count", "namespace") for name in NAMES}
    return {name: sum(of_namespaces.values()) for name, of_namespaces in counted.items()}


def seconds_between(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def ends(operator: Operator) -> dict[str, object]:
    """The number of jobs and attempts that began and ended, by reason if the metric has one."""

    def counted(metric: str) -> dict[str, float]:
        return {reason: count for reason, count in operator.samples(metric, "reason").items() if count}

    return {
        "created": sum(operator.samples("horovodjob_jobs_created_total", "namespace").values()),
        "succeeded": sum(operator.samples("horovodjob_jobs_succeeded_total", "namespace").values()),
        "failed": counted("horovodjob_jobs_failed_total"),
        "restarts": counted("horovodjob_restarts_total"),
    }


def test_starts_ends_and_restarts_of_jobs_are_counted(restarted_operator: Operator, submit_job: Submit) -> None:
    assert ends(restarted_operator) == {"created": 0, "succeeded": 0, "failed": {}, "restarts": {}}
    assert durations(restarted_operator) == {"queue": 0, "start": 0, "run": 0}
    good, bad = submit_job("good"), submit_job("bad", runPolicy={"backoffLimit": 1})
    good.advance_to("Succeeded")
    bad.wait("Queued")
    assert ends(restarted_operator) == {"created": 2, "succeeded": 1, "failed": {}, "restarts": {}}
    assert durations(restarted_operator) == {"queue": 1, "start": 1, "run": 1}
    metrics, status, created = restarted_operator.metrics(), good.status, good.get()["metadata"]["creationTimestamp"]
    total = {name: metrics[f'horovodjob_{name}_duration_seconds_sum{{namespace="{good.namespace}"}}'] for name in NAMES}
    assert total["start"] == seconds_between(created, status["runningTime"])
    assert total["run"] == seconds_between(status["runningTime"], status["completionTime"])
    assert 0 <= total["queue"] <= total["start"]
    bad.advance_to("Restarting")
    assert ends(restarted_operator) == {"created": 2, "succeeded": 1, "failed": {}, "restarts": {"RankFailed": 1}}
    bad.skip_backoff()
    bad.advance_to("Running", since="Queued")
    bad.end("launcher", 1)
    bad.wait("Failed")
    failed = {"BackoffLimitExceeded": 1}
    assert ends(restarted_operator) == {"created": 2, "succeeded": 1, "failed": failed, "restarts": {"RankFailed": 1}}
    # The second attempt is not part of the queueing time of a new job.
    assert durations(restarted_operator) == {"queue": 2, "start": 2, "run": 2}


def test_a_job_that_changes_while_its_retry_is_delayed_waits_in_the_work_queue(
    restarted_operator: Operator, submit_job: Submit, api: Api
) -> None:
    # A NetworkPolicy `train` of another job blocks the job `train` until it is deleted.
    other = submit_job("other", runPolicy={"managedBy": "example.com/nobody"})
    metadata = {"name": "train", "ownerReferences": [other.owner_reference]}
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata}
    policies = f"/apis/networking.k8s.io/v1/namespaces/{other.namespace}/networkpolicies"
    api.create(policies, {**body, "spec": {"podSelector": {}}})

    def metric(name: str) -> float:
        return restarted_operator.metrics()[f"horovodjob_operator_{name}"]

    assert metric("reconcile_errors_total") == 0
    job = submit_job()  # with each try the delay grows
    wait_for("a long delay", lambda: metric("reconcile_errors_total") >= 4)
    api.patch(job.path, {"metadata": {"labels": {"changed": "yes"}}})
    wait_for("the change", lambda: metric("workqueue_depth") == 1)
    api.delete(f"{policies}/train")
    job.advance_to("Succeeded")
    wait_for("an empty queue", lambda: metric("workqueue_depth") == 0)
    assert metric("workqueue_queue_duration_seconds_sum") > 1
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})
    requests = restarted_operator.requests()
    assert (requests["create pods"], requests["deletecollection pods"]) == (3, 1)
    assert metric("reconcile_duration_seconds_count") >= 4
