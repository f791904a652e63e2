"""The gauges of jobs that Prometheus scrapes: stalled jobs, and jobs that should have started."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from horovodjob.api.constants import ConditionType, Phase
from horovodjob.api.job import HorovodJob, Metadata
from horovodjob_operator.controller.jobs.job_state import JobState
from horovodjob_operator.controller.jobs.job_store import JobStore, finished_job_from_raw
from horovodjob_operator.domain import names
from horovodjob_operator.domain.pods.pod import ContainerWaiting
from horovodjob_operator.metrics import REGISTRY, JobCollector, NamespaceSeries
from unit.domain.fake_cluster import NOON, FakeCluster, new_cluster, phase_of, training_job

Series = dict[tuple[str, ...], float]


def series(jobs: Iterable[HorovodJob], name: str, *, is_leader: bool = True) -> Series:
    """The values of a gauge, by its labels."""
    collector = JobCollector(lambda: jobs, tuple, tuple, lambda: is_leader)
    families = {family.name: family for family in collector.collect()}
    return {tuple(sample.labels.values()): sample.value for sample in families[name].samples}


def stalled(*clusters: FakeCluster, is_leader: bool = True) -> Series:
    """The stalled jobs by namespace and reason."""
    return series([cluster.job for cluster in clusters], "horovodjob_jobs_stalled", is_leader=is_leader)


def start_deadline(*clusters: FakeCluster) -> dict[str, float]:
    """The earliest deadline of a start by namespace, in seconds after noon."""
    jobs = [cluster.job for cluster in clusters]
    found = series(jobs, "horovodjob_earliest_start_deadline_timestamp_seconds")
    return {namespace: time - NOON.timestamp() for (namespace,), time in found.items()}


def stalled_cluster(namespace: str = "team") -> FakeCluster:
    """A job with a container that the kubelet could not start 50 s after all pods had a node."""
    cluster = starting_cluster()
    cluster.wait(50)
    metadata = cluster.job.metadata.model_copy(update={"namespace": namespace})
    cluster.job = cluster.job.model_copy(update={"metadata": metadata})
    waiting = ContainerWaiting("worker", "CreateContainerConfigError", 'secret "keys" not found')
    cluster.update_pod(names.worker_name(cluster.job, 0), waiting=waiting)
    cluster.reconcile()
    return cluster


def starting_cluster(**spec: Any) -> FakeCluster:
    """A job that has had all its nodes since 100 s after noon."""
    cluster = new_cluster(**spec)
    cluster.wait(100)
    cluster.schedule_pods()
    cluster.reconcile()
    assert phase_of(cluster) is Phase.STARTING
    return cluster


def restarted_cluster(**spec: Any) -> FakeCluster:
    """A job that failed 1,000 s after it has been Starting, and is Starting again 50 s later."""
    cluster = starting_cluster(**spec)
    cluster.make_workers_ready()
    cluster.reconcile()
    cluster.wait(1000)
    cluster.end_container(names.launcher_name(cluster.job), 1)
    cluster.reconcile()
    cluster.reconcile(after=20)
    assert phase_of(cluster) is Phase.RESTARTING
    cluster.remove_terminating_pods()
    cluster.reconcile(after=30)
    cluster.schedule_pods()
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.STARTING, 2)
    return cluster


def test_stalled_jobs_are_counted_by_namespace_and_reason() -> None:
    clusters = (stalled_cluster("a"), stalled_cluster("a"), stalled_cluster("b"), starting_cluster())
    assert stalled(*clusters) == {("a", "InvalidSpec"): 2, ("b", "InvalidSpec"): 1}
    assert stalled(*clusters, is_leader=False) == {}


def test_a_failed_job_is_not_stalled_although_it_has_the_condition() -> None:
    cluster = new_cluster(runPolicy={"terminate": True})
    condition = cluster.status.condition(ConditionType.STALLED)
    assert (phase_of(cluster), condition and condition.status) == (Phase.FAILED, "True")
    assert stalled(cluster) == {}


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 600),
        ({"scheduling": {"timeoutSeconds": 700}}, 700),
        ({"scheduling": {"timeoutSeconds": 60}}, 600),
        ({"scheduling": {"timeoutSeconds": 700}, "preparation": {"command": "true", "timeoutSeconds": 900}}, 1600),
        ({"scheduling": {"timeoutSeconds": 700, "gang": "Native"}}, 700),
    ],
    ids=["default", "timeout", "short timeout", "preparation", "gang"],
)
def test_a_job_should_run_when_its_time_limit_after_the_assignment_of_nodes_is_over(
    spec: dict[str, Any], seconds: int
) -> None:
    assert start_deadline(starting_cluster(**spec)) == {"team": 100 + seconds}


def test_the_earliest_deadline_of_starting_jobs_is_exported_and_an_error_does_not_change_it() -> None:
    clusters = [starting_cluster(scheduling={"timeoutSeconds": seconds}) for seconds in (900, 700, 1200)]
    assert start_deadline(*clusters) == {"team": 800}
    failing = stalled_cluster()
    assert [error.attempt for error in failing.status.errors] == [failing.status.attempt]
    assert start_deadline(failing) == {"team": 700}
    queued, running = FakeCluster(training_job()), FakeCluster(training_job())
    queued.reconcile()
    running.start()
    assert (phase_of(queued), phase_of(running)) == (Phase.QUEUED, Phase.RUNNING)
    assert start_deadline(queued, running, FakeCluster(training_job())) == {}


def test_the_time_limit_of_a_resumed_job_counts_from_its_new_nodes() -> None:
    cluster = starting_cluster(scheduling={"timeoutSeconds": 700})
    cluster.edit_run_policy(suspend=True)
    cluster.reconcile()
    cluster.remove_terminating_pods()
    cluster.wait(5000)
    cluster.edit_run_policy(suspend=False)
    cluster.reconcile()
    cluster.schedule_pods()
    cluster.reconcile()
    assert phase_of(cluster) is Phase.STARTING
    assert start_deadline(cluster) == {"team": 5800}


def test_the_time_limit_after_a_scheduling_timeout_counts_from_the_next_nodes() -> None:
    cluster = new_cluster(scheduling={"timeoutSeconds": 700})
    cluster.schedule_pods(at_most=2)
    cluster.reconcile(after=700)
    cluster.remove_terminating_pods()
    cluster.reconcile(after=1300)
    cluster.schedule_pods()
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.attempt) == (Phase.STARTING, 2)
    assert start_deadline(cluster) == {"team": 2700}


def test_a_restart_has_its_longest_delay_and_the_time_for_its_nodes_in_addition() -> None:
    cluster = restarted_cluster(scheduling={"timeoutSeconds": 700})
    failed_at = (cluster.status.errors[-1].time - NOON) / timedelta(seconds=1)
    assert start_deadline(cluster) == {"team": failed_at + 360 + 700 + 700}


def test_a_restarted_gang_has_no_deadline_because_it_can_wait_for_its_nodes_without_a_limit() -> None:
    assert start_deadline(restarted_cluster(scheduling={"gang": "Native"})) == {}


def finished(namespace: str, name: str, at: datetime, reason: str = "BackoffLimitExceeded") -> dict[str, Any]:
    """A failed job as the API server stores it."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": at.isoformat(),
        },
        "spec": {},
        "status": {
            "phase": "Failed",
            "observedGeneration": 1,
            "completionTime": at.isoformat(),
            "conditions": [{"type": "Failed", "status": "True", "reason": reason}],
        },
    }


def store_of_failures() -> JobStore:
    """The jobs `new` and `old`, which failed 10 and 70 minutes before noon."""
    store = JobStore()
    for minutes, name in ((10, "new"), (70, "old")):
        raw = finished("team", name, NOON - timedelta(minutes=minutes))
        job = finished_job_from_raw(raw, Metadata.model_validate(raw["metadata"]))
        assert job
        store.keep_finished(("team", name), job)
    return store


def test_a_failed_job_has_a_series_with_its_name_and_reason_for_a_while() -> None:
    store = store_of_failures()
    failing = new_cluster(runPolicy={"terminate": True})
    store.states[failing.job.key] = JobState(failing.job, 1)
    failures = dict(store.failures_since(NOON - timedelta(hours=1)))
    assert set(failures) == {("team", "new"), failing.job.key}
    collector = JobCollector(tuple, tuple, lambda: failures.items(), lambda: True)
    (family,) = (one for one in collector.collect() if one.name == "horovodjob_job_failed_timestamp_seconds")
    found = {tuple(sample.labels.values()): sample.value for sample in family.samples}
    assert found["team", "new", "BackoffLimitExceeded"] == (NOON - timedelta(minutes=10)).timestamp()
    assert (*failing.job.key, "Terminated") in found


def test_a_failed_job_that_is_deleted_keeps_its_series_for_the_same_while() -> None:
    """With ttlSecondsAfterFinished 0 a job is deleted before Prometheus scrapes."""
    store = store_of_failures()
    for name in ("new", "old"):
        assert store.delete(("team", name), name)
    failing = new_cluster(runPolicy={"terminate": True})
    store.keep(JobState(failing.job, 1))
    assert store.delete(failing.job.key, failing.job.metadata.uid)
    assert set(dict(store.failures_since(NOON - timedelta(hours=1)))) == {("team", "new"), failing.job.key}


def namespaces_with_series() -> set[str]:
    """The namespaces in all metrics with this label."""
    samples = (sample for family in REGISTRY.collect() for sample in family.samples)
    return {sample.labels["namespace"] for sample in samples if "namespace" in sample.labels}


def test_counters_of_a_namespace_begin_with_zero_and_end_after_its_last_job() -> None:
    before = namespaces_with_series()
    series = NamespaceSeries()
    series.add("short-lived")
    value = REGISTRY.get_sample_value
    assert value("horovodjob_jobs_created_total", {"namespace": "short-lived"}) == 0
    labels = {"namespace": "short-lived", "reason": "BackoffLimitExceeded"}
    assert value("horovodjob_jobs_failed_total", labels) == 0
    series.remove_unused({"short-lived"})
    series.remove_unused(set())
    assert namespaces_with_series() == {*before, "short-lived"}, "Prometheus has not scraped the last values yet"
    series.remove_unused(set())
    assert namespaces_with_series() == before


def test_a_running_job_has_a_series_with_its_gpus_also_if_it_reports_no_progress() -> None:
    cluster = starting_cluster(worker={"replicas": 2, "gpus": 4})
    assert series([cluster.job], "horovodjob_training_gpus") == {}
    cluster.start()
    assert phase_of(cluster) is Phase.RUNNING
    assert list(series([cluster.job], "horovodjob_training_gpus").values()) == [8]
    assert series([cluster.job], "horovodjob_training_progress_ratio") == {}


def test_the_oldest_queued_job_of_a_namespace_is_exported() -> None:
    first, second, running = (FakeCluster(training_job()) for _ in range(3))
    running.start()
    first.reconcile()
    second.wait(60)
    second.reconcile()
    found = series([each.job for each in (second, first, running)], "horovodjob_oldest_queued_timestamp_seconds")
    assert found == {("team",): NOON.timestamp()}
    assert series([running.job], "horovodjob_oldest_queued_timestamp_seconds") == {}
