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
    names = ("queue", "start", "run")
    counted = {name: operator.samples(f"horovodjob_{name}_duration_seconds_count", "namespace") for name in names}
    return {name: sum(of_namespaces.values()) for name, of_namespaces in counted.items()}


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


def test_durations_equal_the_elapsed_time(restarted_operator: Operator, submit_job: Submit) -> None:
    begin = time.monotonic()
    job = submit_job()
    job.wait("Queued")
    wait_for("two seconds of the queue", lambda: time.monotonic() - begin > 2)
    job.advance_to("Succeeded", since="Queued")
    passed = time.monotonic() - begin
    metrics, of_job = restarted_operator.metrics(), f'namespace="{job.namespace}"'
    queued = metrics[f"horovodjob_queue_duration_seconds_sum{{{of_job}}}"]
    started = metrics[f"horovodjob_start_duration_seconds_sum{{{of_job}}}"]
    # Kubernetes writes whole seconds.
    assert 1 <= queued <= started <= passed + 1
    assert started + metrics[f"horovodjob_run_duration_seconds_sum{{{of_job}}}"] <= passed + 1
    assert metrics[f'horovodjob_queue_duration_seconds_bucket{{le="0.5",{of_job}}}'] == 0
    assert metrics[f'horovodjob_queue_duration_seconds_bucket{{le="+Inf",{of_job}}}'] == 1


def test_a_job_is_in_the_series_of_its_phase_until_it_is_deleted(submit_job: Submit, operator: Operator) -> None:
    jobs = [submit_job("one"), submit_job("two")]
    for phase, since in (("Queued", ""), ("Starting", "Queued"), ("Running", "Starting"), ("Succeeded", "Running")):
        for job in jobs:
            job.advance_to(phase, since=since)
        wait_for(f"both in {phase}", lambda phase=phase: operator.jobs(jobs[0].namespace) == {phase: 2})  # type: ignore[misc]
    jobs[0].delete()
    wait_for("one to be forgotten", lambda: operator.jobs(jobs[0].namespace) == {"Succeeded": 1})


def test_the_oldest_queued_job_sets_the_age_of_the_queue(submit_job: Submit, operator: Operator) -> None:
    def oldest(job: Job) -> float | None:
        return operator.samples("horovodjob_oldest_queued_timestamp_seconds", "namespace").get(job.namespace)

    first = submit_job("first").advance_to("Queued")
    since = datetime.fromisoformat(first.condition("Queued")["lastTransitionTime"]).timestamp()
    wait_for("the next second", lambda: time.time() > since + 1)
    second = submit_job("second").advance_to("Queued")
    wait_for("the first", lambda: oldest(first) == since)
    first.advance_to("Starting", since="Queued")
    wait_for("the second", lambda: since < (oldest(first) or 0))
    second.advance_to("Starting", since="Queued")
    wait_for("nobody", lambda: oldest(first) is None)


def test_the_start_deadline_is_that_of_the_starting_job_that_is_due_first(
    submit_job: Submit, operator: Operator
) -> None:
    def deadline(job: Job) -> float | None:
        name = "horovodjob_earliest_start_deadline_timestamp_seconds"
        return operator.samples(name, "namespace").get(job.namespace)

    late, soon = submit_job("late", scheduling={"timeoutSeconds": 1200}), submit_job("soon")
    late.advance_to("Queued")
    assert deadline(late) is None
    for job, seconds in ((late, 1200), (soon, 600)):
        job.advance_to("Starting")
        since = datetime.fromisoformat(job.condition("Queued")["lastTransitionTime"]).timestamp()
        wait_for(f"the deadline of {job.name}", lambda since=since, seconds=seconds: deadline(late) == since + seconds)  # type: ignore[misc]
    soon.advance_to("Running", since="Starting")
    wait_for("the other deadline", lambda: (deadline(late) or 0) > since + 900)
    late.delete()
    wait_for("no deadline", lambda: deadline(late) is None)


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


def policy_of_another_job(api: Api, submit_job: Submit) -> str:
    """Path of a NetworkPolicy `train` of another job, which blocks the job `train` until it is deleted."""
    other = submit_job("other", runPolicy={"managedBy": "example.com/nobody"})
    owner = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "name": "other", "uid": other.uid}
    metadata = {"name": "train", "ownerReferences": [{**owner, "controller": True}]}
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata}
    policies = f"/apis/networking.k8s.io/v1/namespaces/{other.namespace}/networkpolicies"
    api.create(policies, {**body, "spec": {"podSelector": {}}})
    return f"{policies}/train"


def test_a_job_that_changes_while_its_retry_is_delayed_waits_in_the_work_queue(
    restarted_operator: Operator, submit_job: Submit, api: Api, namespace: str
) -> None:
    policy = policy_of_another_job(api, submit_job)
    job = submit_job()  # with each try the delay grows, until the NetworkPolicy of the other job is deleted
    wait_for("a long delay", lambda: restarted_operator.metrics()["horovodjob_operator_reconcile_errors_total"] >= 4)
    api.patch(job.path, {"metadata": {"labels": {"changed": "yes"}}})
    wait_for("the change", lambda: restarted_operator.metrics()["horovodjob_operator_workqueue_depth"] == 1)
    api.delete(policy)
    job.advance_to("Succeeded")
    wait_for("an empty queue", lambda: restarted_operator.metrics()["horovodjob_operator_workqueue_depth"] == 0)
    assert restarted_operator.metrics()["horovodjob_operator_workqueue_queue_duration_seconds_sum"] > 1


def test_every_request_and_every_reconciliation_is_counted(restarted_operator: Operator, submit_job: Submit) -> None:
    looks = restarted_operator.metrics()["horovodjob_operator_reconcile_duration_seconds_count"]
    before = restarted_operator.requests()
    job = submit_job(worker={"replicas": 3, "gpus": 0}).advance_to("Succeeded")
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})
    grown = {call: count - before.get(call, 0) for call, count in restarted_operator.requests().items()}
    assert (grown["create pods"], grown["create networkpolicies"], grown["deletecollection pods"]) == (4, 1, 1)
    metrics = restarted_operator.metrics()
    assert metrics["horovodjob_operator_reconcile_duration_seconds_count"] >= looks + 4
    assert metrics["horovodjob_operator_workqueue_queue_duration_seconds_count"] >= 4


def test_a_reconciliation_that_must_be_repeated_is_counted_as_an_error(
    restarted_operator: Operator, submit_job: Submit, api: Api, namespace: str
) -> None:
    assert restarted_operator.metrics()["horovodjob_operator_reconcile_errors_total"] == 0
    policy = policy_of_another_job(api, submit_job)
    job = submit_job()
    wait_for("an error", lambda: restarted_operator.metrics()["horovodjob_operator_reconcile_errors_total"] >= 1)
    api.delete(policy)
    job.advance_to("Succeeded")


@pytest.mark.parametrize("resource", ["pods", "horovodjobs"])
def test_each_event_resets_the_age_of_a_watch(submit_job: Submit, operator: Operator, resource: str) -> None:
    def age() -> float:
        return operator.samples("horovodjob_operator_watch_age_seconds", "resource")[resource]

    job = submit_job().advance_to("Running")
    wait_for("silence", lambda: age() > 1)
    begin = time.monotonic()
    job.end("launcher", 0)
    job.wait("Succeeded")
    wait_for("the event", lambda: age() <= time.monotonic() - begin)


def test_the_operator_reports_that_it_is_healthy_ready_and_the_leader(operator: Operator) -> None:
    assert operator.get("/healthz") == (200, "ok\n")
    assert operator.get("/readyz") == (200, "ok\n")
    assert operator.metrics()["horovodjob_operator_leader"] == 1
