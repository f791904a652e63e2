"""Metrics of the operator and of its jobs, with the names and base units of Prometheus."""

from collections import Counter as Tally
from collections.abc import Callable, Container, Iterable
from datetime import datetime

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from horovodjob.api.constants import ConditionType, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import GoodputSeconds, HorovodJobStatus
from horovodjob_operator.domain.checks.startup_and_execution import start_deadline
from horovodjob_operator.domain.goodput import gpu_seconds
from horovodjob_operator.domain.job_errors import JobFailure
from horovodjob_operator.domain.progress_report import ReportResult

# The creation time of a counter would be an additional series.
disable_created_metrics()  # type: ignore[no-untyped-call]
PATH = "/metrics"
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
DISRUPTIONS = (Reason.WORKER_LOST, Reason.EVICTED, Reason.NODE_LOST)
FAILURE_REASONS = (
    Reason.BACKOFF_LIMIT_EXCEEDED,
    Reason.RANK_FAILED,
    Reason.PROGRESS_DEADLINE_EXCEEDED,
    Reason.DEADLINE_EXCEEDED,
    Reason.TERMINATED,
    Reason.ADMISSION_CONFLICT,
    *DISRUPTIONS,
)
RESTART_REASONS = (
    Reason.RANK_FAILED,
    Reason.LAUNCHER_FAILED,
    Reason.PREPARATION_FAILED,
    Reason.WORKER_OUT_OF_MEMORY,
    Reason.SSH_UNAVAILABLE,
    Reason.SCRIPT_NOT_FOUND,
    Reason.PROGRESS_DEADLINE_EXCEEDED,
    *DISRUPTIONS,
)
JOB_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400, 604800)

CREATED = Counter("horovodjob_jobs_created", "Jobs seen for the first time.", ["namespace"], registry=REGISTRY)
SUCCEEDED = Counter("horovodjob_jobs_succeeded", "Jobs that succeeded.", ["namespace"], registry=REGISTRY)
FAILED = Counter("horovodjob_jobs_failed", "Jobs that failed, by reason.", ["namespace", "reason"], registry=REGISTRY)
RESTARTS = Counter(
    "horovodjob_restarts",
    "Attempts that failed and were followed by another.",
    ["namespace", "reason"],
    registry=REGISTRY,
)
GPU_SECONDS = Counter(
    "horovodjob_gpu_seconds",
    "GPU seconds of finished jobs by what they were used for.",
    ["namespace", "cause"],
    registry=REGISTRY,
)
QUEUE_DURATION = Histogram(
    "horovodjob_queue_duration_seconds",
    "Time from creation or resumption of a job until all pods have a node.",
    ["namespace"],
    buckets=JOB_BUCKETS,
    registry=REGISTRY,
)
START_DURATION = Histogram(
    "horovodjob_start_duration_seconds",
    "Time from creation or resumption of a job until its ranks run.",
    ["namespace"],
    buckets=JOB_BUCKETS,
    registry=REGISTRY,
)
RUN_DURATION = Histogram(
    "horovodjob_run_duration_seconds",
    "Time from the start of the ranks until the end of the job.",
    ["namespace"],
    buckets=JOB_BUCKETS,
    registry=REGISTRY,
)
RECONCILE_DURATION = Histogram(
    "horovodjob_operator_reconcile_duration_seconds",
    "Duration of a reconciliation, including its API requests.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10),
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter("horovodjob_operator_reconcile_errors", "Reconciliations that failed.", registry=REGISTRY)
WORKQUEUE_DEPTH = Gauge(
    "horovodjob_operator_workqueue_depth", "Jobs that wait for their reconciliation.", registry=REGISTRY
)
WORKQUEUE_DELAYED = Gauge(
    "horovodjob_operator_workqueue_delayed", "Jobs that are enqueued for a later time.", registry=REGISTRY
)
TASKS = Gauge("horovodjob_operator_tasks", "Tasks of the event loop.", registry=REGISTRY)
WORKQUEUE_DURATION = Histogram(
    "horovodjob_operator_workqueue_queue_duration_seconds",
    "Time that jobs wait for their reconciliation.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60),
    registry=REGISTRY,
)
API_REQUESTS = Counter(
    "horovodjob_operator_api_requests", "Requests to the API server.", ["verb", "resource", "code"], registry=REGISTRY
)
REPORTS = Counter(
    "horovodjob_operator_progress_reports",
    "Progress reports by result.",
    ["result"],
    registry=REGISTRY,
)
for result in ReportResult:
    REPORTS.labels(result)
LEADER = Gauge("horovodjob_operator_leader", "1 if this process is the leader, else 0.", registry=REGISTRY)
WATCH_AGE = Gauge(
    "horovodjob_operator_watch_age_seconds",
    "Seconds since a watch last received data.",
    ["resource"],
    registry=REGISTRY,
)


class NamespaceSeries:
    """The series of counters and histograms by namespace: they exist while the namespace has jobs, and a while longer.

    They begin with 0 at the first job, because increase() of Prometheus misses a series that begins with the value 1.
    """

    def __init__(self) -> None:
        self._in_use: dict[str, bool] = {}
        """Namespaces with series, and whether they had jobs at the last check."""

    def add(self, namespace: str) -> None:
        """Creates the series of a namespace that has a job."""
        if namespace not in self._in_use:
            for metric in (CREATED, SUCCEEDED, QUEUE_DURATION, START_DURATION, RUN_DURATION):
                metric.labels(namespace)
            for counter, reasons in (
                (FAILED, FAILURE_REASONS),
                (RESTARTS, RESTART_REASONS),
                (GPU_SECONDS, tuple(GoodputSeconds.model_fields)),
            ):
                for reason in reasons:
                    counter.labels(namespace, reason)
        self._in_use[namespace] = True

    def remove_unused(self, namespaces: Container[str]) -> None:
        """Removes the series of namespaces that were without jobs at the last check and are now.

        Prometheus has scraped their last values in the meantime.
        """
        for namespace, was_in_use in tuple(self._in_use.items()):
            self._in_use[namespace] = namespace in namespaces
            if not was_in_use and not self._in_use[namespace]:
                del self._in_use[namespace]
                counters = (CREATED, SUCCEEDED, FAILED, RESTARTS, GPU_SECONDS)
                for metric in (*counters, QUEUE_DURATION, START_DURATION, RUN_DURATION):
                    metric.remove_by_labels({"namespace": namespace})


NAMESPACE_SERIES = NamespaceSeries()


class JobCollector(Collector):
    """Gauges of jobs, computed at each scrape, so that the series of deleted jobs disappear.

    Only the leader exports them, so that a sum over all replicas counts each job once.
    """

    def __init__(
        self,
        jobs: Callable[[], Iterable[HorovodJob]],
        finished: Callable[[], Iterable[tuple[str, Phase]]],
        failures: Callable[[], Iterable[tuple[tuple[str, str], JobFailure]]],
        is_leader: Callable[[], bool],
    ) -> None:
        self._jobs, self._finished, self._failures, self._is_leader = jobs, finished, failures, is_leader

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Jobs by phase, stalled and failed ones, the times of those that wait, and the progress of running jobs."""
        is_leader = self._is_leader()
        jobs = tuple(self._jobs()) if is_leader else ()
        yield _phases(jobs, self._finished() if is_leader else ())
        yield _stalled(jobs)
        yield _without_progress(jobs)
        yield _slowest_ranks(jobs)
        yield _failed(self._failures() if is_leader else ())
        yield _oldest_queued(jobs)
        yield _earliest_start_deadline(jobs)
        yield from _training(jobs)


def _phases(jobs: Iterable[HorovodJob], finished: Iterable[tuple[str, Phase]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily("horovodjob_jobs", "Jobs by phase.", labels=["namespace", "phase"])
    tally = Tally((job.metadata.namespace, job.status.phase or Phase.QUEUED) for job in jobs)
    tally.update(finished)
    for (namespace, phase), count in sorted(tally.items()):
        family.add_metric([namespace, phase], count)
    return family


def _stalled(jobs: Iterable[HorovodJob]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "horovodjob_jobs_stalled",
        "Unfinished jobs that cannot continue without a user action, by reason.",
        labels=["namespace", "reason"],
    )
    tally = Tally(
        (job.metadata.namespace, stalled.reason)
        for job in jobs
        if not job.status.is_finished
        if (stalled := job.status.condition(ConditionType.STALLED)) and stalled.status == "True"
    )
    for (namespace, reason), count in sorted(tally.items()):
        family.add_metric([namespace, reason], count)
    return family


def _without_progress(jobs: Iterable[HorovodJob]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "horovodjob_training_stalled",
        "1 for a job that runs and completes no steps; others have no series.",
        labels=["namespace", "name"],
    )
    for job in jobs:
        condition = job.status.condition(ConditionType.PROGRESSING)
        if job.status.phase is Phase.RUNNING and condition and condition.status == "False":
            family.add_metric(job.key, 1)
    return family


def _slowest_ranks(jobs: Iterable[HorovodJob]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "horovodjob_slowest_rank_ratio",
        "Time of the slowest rank for its part of a step, in relation to the median; others have no series.",
        labels=["namespace", "name"],
    )
    for job in jobs:
        slowest = job.status.training.slowest_rank if job.status.training else None
        if job.status.phase is Phase.RUNNING and slowest:
            family.add_metric(job.key, slowest.ratio)
    return family


def _failed(failures: Iterable[tuple[tuple[str, str], JobFailure]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "horovodjob_job_failed_timestamp_seconds",
        "When a job failed, for an hour after that, also if it is deleted, in seconds since 1970.",
        labels=["namespace", "name", "reason"],
    )
    for key, failure in failures:
        family.add_metric([*key, failure.reason], failure.at.timestamp())
    return family


def _oldest_queued(jobs: Iterable[HorovodJob]) -> GaugeMetricFamily:
    def queued_since(job: HorovodJob) -> datetime | None:
        if (job.status.phase or Phase.QUEUED) is not Phase.QUEUED:
            return None
        queued = job.status.condition(ConditionType.QUEUED)
        return queued.last_transition_time if queued else job.metadata.creation_timestamp

    return _earliest(
        jobs,
        queued_since,
        "horovodjob_oldest_queued_timestamp_seconds",
        "When the job that has been Queued for longest was queued, in seconds since 1970.",
    )


def _earliest_start_deadline(jobs: Iterable[HorovodJob]) -> GaugeMetricFamily:
    return _earliest(
        jobs,
        start_deadline,
        "horovodjob_earliest_start_deadline_timestamp_seconds",
        "When the first of the Starting jobs should run at the latest, in seconds since 1970.",
    )


def _earliest(
    jobs: Iterable[HorovodJob], time_of: Callable[[HorovodJob], datetime | None], name: str, documentation: str
) -> GaugeMetricFamily:
    """The earliest of these times of the jobs of each namespace."""
    family = GaugeMetricFamily(name, documentation, labels=["namespace"])
    earliest: dict[str, float] = {}
    for job in jobs:
        if time := time_of(job):
            namespace = job.metadata.namespace
            earliest[namespace] = min(time.timestamp(), earliest.get(namespace, time.timestamp()))
    for namespace, timestamp in sorted(earliest.items()):
        family.add_metric([namespace], timestamp)
    return family


def _training(jobs: Iterable[HorovodJob]) -> tuple[GaugeMetricFamily, ...]:
    def family(name: str, documentation: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"horovodjob_training_{name}", documentation, labels=["namespace", "name"])

    gpus = family("gpus", "GPUs of all workers of a running job.")
    progress = family("progress_ratio", "Completed share of the training, 0 to 1.")
    speed = family("samples_per_second", "Samples per second of all ranks.")
    loss = family("loss", "The metric `loss` of the newest report.")
    eta = family("eta_timestamp_seconds", "Estimated end of the training, in seconds since 1970.")
    for job in jobs:
        training = job.status.training
        if job.status.phase is not Phase.RUNNING:
            continue
        gpus.add_metric(job.key, job.spec.worker.replicas * job.spec.worker.gpus)
        if training is None:
            continue
        progress.add_metric(job.key, training.progress)
        if training.samples_per_second is not None:
            speed.add_metric(job.key, training.samples_per_second)
        if "loss" in training.metrics:
            loss.add_metric(job.key, training.metrics["loss"])
        if training.eta is not None:
            eta.add_metric(job.key, training.eta.timestamp())
    return gpus, progress, speed, loss, eta


def count_transition(job: HorovodJob, old: HorovodJobStatus, new: HorovodJobStatus) -> None:
    """Counts the changes of a written status."""
    ready, namespace = new.condition(ConditionType.READY), job.metadata.namespace
    reason = ready.reason if ready else ""
    if old.phase is None:
        CREATED.labels(namespace).inc()
    if new.phase is old.phase:
        return
    begin = new.start_time if new.attempt > 1 or old.phase is Phase.SUSPENDED else job.metadata.creation_timestamp
    now = max((c.last_transition_time for c in new.conditions), default=None)
    if now and begin and new.restarts + new.preemptions == 0:
        seconds = max((now - begin).total_seconds(), 0)
        # A quick start has no status with the phase Starting.
        if new.phase is Phase.STARTING or (new.phase is Phase.RUNNING and old.phase is not Phase.STARTING):
            QUEUE_DURATION.labels(namespace).observe(seconds)
        if new.phase is Phase.RUNNING:
            START_DURATION.labels(namespace).observe(seconds)
    if new.phase is Phase.RESTARTING:
        RESTARTS.labels(namespace, reason).inc()
    if new.phase is Phase.SUCCEEDED:
        SUCCEEDED.labels(namespace).inc()
    if new.phase is Phase.FAILED:
        FAILED.labels(namespace, reason).inc()
    if new.is_finished:
        for cause, seconds in gpu_seconds(job, new).items():
            GPU_SECONDS.labels(namespace, cause).inc(seconds)
    if new.completion_time and new.running_time:
        RUN_DURATION.labels(namespace).observe(max((new.completion_time - new.running_time).total_seconds(), 0))
