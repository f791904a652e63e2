"""The operator's metrics and health endpoints: counters, durations, and the lifetime of series."""

import time
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


def test_a_job_is_in_the_series_of_its_phase_and_the_oldest_of_each_sets_the_age_of_queue_and_start(
    submit_job: Submit, operator: Operator
) -> None:
    def sample(job: Job, name: str) -> float | None:
        return operator.samples(f"horovodjob_{name}_timestamp_seconds", "namespace").get(job.namespace)

    def since(job: Job) -> float:
        return datetime.fromisoformat(job.condition("Queued")["lastTransitionTime"]).timestamp()

    late = submit_job("late", scheduling={"timeoutSeconds": 1200}).advance_to("Queued")
    queued = since(late)
    wait_for("the next second", lambda: time.time() > queued + 1)
    soon = submit_job("soon").advance_to("Queued")
    wait_for("both", lambda: operator.jobs(late.namespace) == {"Queued": 2})
    wait_for("the first", lambda: sample(late, "oldest_queued") == queued)
    assert sample(late, "earliest_start_deadline") is None
    late.advance_to("Starting", since="Queued")
    wait_for("the second", lambda: (sample(late, "oldest_queued") or 0) > queued)
    started = since(late)
    wait_for("its deadline", lambda: sample(late, "earliest_start_deadline") == started + 1200)
    soon.advance_to("Starting", since="Queued")
    wait_for("nobody", lambda: sample(late, "oldest_queued") is None)
    wait_for("the earlier deadline", lambda: sample(late, "earliest_start_deadline") == since(soon) + 600)
    soon.advance_to("Running", since="Starting")
    wait_for("the other deadline", lambda: sample(late, "earliest_start_deadline") == started + 1200)
    assert operator.jobs(late.namespace) == {"Starting": 1, "Running": 1}
    late.delete()
    wait_for("no deadline", lambda: sample(late, "earliest_start_deadline") is None)
    wait_for("one to be forgotten", lambda: operator.jobs(late.namespace) == {"Running": 1})


def test_a_stalled_job_is_counted_by_its_reason_until_it_continues_or_is_deleted(
    submit_job: Submit, operator: Operator
) -> None:
    def stalled(job: Job) -> dict[str, float]:
        return operator.samples("horovodjob_jobs_stalled", "reason", namespace=job.namespace)

    template = {"template": {"spec": {"containers": "x"}}}
    jobs = [submit_job(name, worker={"replicas": 1, "gpus": 0, **template}) for name in ("first", "second")]
    failed = submit_job("failed", runPolicy={"terminate": True})
    failed.wait("Failed")
    wait_for("both", lambda: stalled(failed) == {"InvalidSpec": 2})
    jobs[0].suspend()
    wait_for("one", lambda: stalled(failed) == {"InvalidSpec": 1})
    jobs[1].delete()
    wait_for("none", lambda: stalled(failed) == {})


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


def test_each_event_resets_the_age_of_a_watch(submit_job: Submit, operator: Operator) -> None:
    def ages() -> dict[str, float]:
        found = operator.samples("horovodjob_operator_watch_age_seconds", "resource")
        return {resource: found[resource] for resource in ("pods", "horovodjobs")}

    job = submit_job().advance_to("Running")
    wait_for("silence", lambda: min(ages().values()) > 1)
    begin = time.monotonic()
    job.end("launcher", 0)
    job.wait("Succeeded")
    wait_for("the events", lambda: max(ages().values()) <= time.monotonic() - begin)
    assert (operator.get("/healthz"), operator.get("/readyz")) == ((200, "ok\n"), (200, "ok\n"))
    assert operator.metrics()["horovodjob_operator_leader"] == 1
