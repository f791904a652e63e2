"""Metrics of the operator and of its jobs, in Prometheus names and base units."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable

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
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.progress_report import ReportResult

# The time of creation of each counter would be one more series each.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
# Series exist from the start: Prometheus' increase() does not see one that appears with the value 1.
LOSSES = (Reason.WORKER_LOST, Reason.EVICTED, Reason.NODE_LOST)
FAILURE_REASONS = (Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED, Reason.TERMINATED, *LOSSES)
RESTART_REASONS = (
    Reason.RANK_FAILED,
    Reason.LAUNCHER_FAILED,
    Reason.PREPARATION_FAILED,
    Reason.WORKER_OUT_OF_MEMORY,
    Reason.SSH_UNAVAILABLE,
    Reason.SCRIPT_NOT_FOUND,
    *LOSSES,
)
SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400, 604800)

CREATED = Counter("horovodjob_jobs_created", "Jobs seen for the first time.", registry=REGISTRY)
SUCCEEDED = Counter("horovodjob_jobs_succeeded", "Jobs that succeeded.", registry=REGISTRY)
FAILED = Counter("horovodjob_jobs_failed", "Jobs that failed, by reason.", ["reason"], registry=REGISTRY)
RESTARTS = Counter(
    "horovodjob_restarts", "Attempts that ended and were followed by another.", ["reason"], registry=REGISTRY
)
QUEUE_DURATION = Histogram(
    "horovodjob_queue_duration_seconds", "Created (or resumed) to all pods placed.", buckets=SECONDS, registry=REGISTRY
)
START_DURATION = Histogram(
    "horovodjob_start_duration_seconds", "Created (or resumed) to ranks running.", buckets=SECONDS, registry=REGISTRY
)
RUN_DURATION = Histogram(
    "horovodjob_run_duration_seconds", "Ranks running to the end of the job.", buckets=SECONDS, registry=REGISTRY
)
RECONCILE_DURATION = Histogram(
    "horovodjob_operator_reconcile_duration_seconds",
    "One reconciliation of one job, API calls included.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10),
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "horovodjob_operator_reconcile_errors", "Reconciliations that ended in an error.", registry=REGISTRY
)
WORKQUEUE_DEPTH = Gauge(
    "horovodjob_operator_workqueue_depth", "Jobs that wait for their reconciliation to begin.", registry=REGISTRY
)
WORKQUEUE_DURATION = Histogram(
    "horovodjob_operator_workqueue_queue_duration_seconds",
    "An event of a job to the beginning of its reconciliation.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60),
    registry=REGISTRY,
)
API_REQUESTS = Counter(
    "horovodjob_operator_api_requests", "Requests to the API server.", ["verb", "resource", "code"], registry=REGISTRY
)
REPORTS = Counter(
    "horovodjob_operator_progress_reports",
    "Reports of progress by their result.",
    ["result"],
    registry=REGISTRY,
)
for result in ReportResult:
    REPORTS.labels(result)
for counter, reasons in ((FAILED, FAILURE_REASONS), (RESTARTS, RESTART_REASONS)):
    for reason in reasons:
        counter.labels(reason)
LEADER = Gauge("horovodjob_operator_leader", "1 where this process is the leader.", registry=REGISTRY)
WATCH_AGE = Gauge(
    "horovodjob_operator_watch_age_seconds",
    "Seconds since a watch last gave a sign of life.",
    ["resource"],
    registry=REGISTRY,
)


class JobStates(Collector):
    """Gauges of the jobs, computed from the cache at each scrape, so that series of deleted jobs disappear.

    Only the leader has them: a sum over all replicas counts each job once.
    """

    def __init__(
        self,
        jobs: Callable[[], Iterable[HorovodJob]],
        finished: Callable[[], Iterable[tuple[str, Phase]]],
        leads: Callable[[], bool],
    ) -> None:
        self._jobs, self._finished, self._leads = jobs, finished, leads

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Jobs by namespace and phase, the wait of the oldest, and the training of each job that runs."""
        leads = self._leads()
        jobs = tuple(self._jobs()) if leads else ()
        yield _phases(jobs, self._finished() if leads else ())
        yield _oldest_queued(jobs)
        yield from _training(jobs)


def _phases(jobs: Iterable[HorovodJob], finished: Iterable[tuple[str, Phase]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily("horovodjob_jobs", "Jobs by phase.", labels=["namespace", "phase"])
    tally = Tally((job.metadata.namespace, job.status.phase or Phase.QUEUED) for job in jobs)
    tally.update(finished)
    for (namespace, phase), count in sorted(tally.items()):
        family.add_metric([namespace, phase], count)
    return family


def _oldest_queued(jobs: Iterable[HorovodJob]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "horovodjob_oldest_queued_timestamp_seconds",
        "Since when the job that has been Queued for longest waits, in seconds since 1970.",
        labels=["namespace"],
    )
    oldest: dict[str, float] = {}
    for job in jobs:
        if (job.status.phase or Phase.QUEUED) is Phase.QUEUED:
            queued = job.status.condition(ConditionType.QUEUED)
            since = (queued.last_transition_time if queued else job.metadata.creation_timestamp).timestamp()
            oldest[job.metadata.namespace] = min(since, oldest.get(job.metadata.namespace, since))
    for namespace, timestamp in sorted(oldest.items()):
        family.add_metric([namespace], timestamp)
    return family


def _training(jobs: Iterable[HorovodJob]) -> tuple[GaugeMetricFamily, ...]:
    def family(name: str, documentation: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"horovodjob_training_{name}", documentation, labels=["namespace", "name"])

    progress = family("progress_ratio", "Done share of the training.")
    speed = family("samples_per_second", "Samples a second, all ranks together.")
    loss = family("loss", "The metric `loss` of the last report.")
    eta = family("eta_timestamp_seconds", "When the training is expected to end, in seconds since 1970.")
    for job in jobs:
        training = job.status.training
        if training is None or job.status.phase is not Phase.RUNNING:
            continue
        progress.add_metric(job.key, training.progress)
        if training.samples_per_second is not None:
            speed.add_metric(job.key, training.samples_per_second)
        if "loss" in training.metrics:
            loss.add_metric(job.key, training.metrics["loss"])
        if training.eta is not None:
            eta.add_metric(job.key, training.eta.timestamp())
    return progress, speed, loss, eta


def count_transition(job: HorovodJob, old: HorovodJobStatus, new: HorovodJobStatus) -> None:
    """Counts what a written status changed."""
    ready = new.condition(ConditionType.READY)
    reason = ready.reason if ready else ""
    if old.phase is None:
        CREATED.inc()
    if new.phase is old.phase:
        return
    begin = new.start_time if new.attempt > 1 or old.phase is Phase.SUSPENDED else job.metadata.creation_timestamp
    now = max((c.last_transition_time for c in new.conditions), default=None)
    if now and begin and new.restarts + new.preemptions == 0:
        if new.phase is Phase.STARTING:
            QUEUE_DURATION.observe(max((now - begin).total_seconds(), 0))
        elif new.phase is Phase.RUNNING:
            START_DURATION.observe(max((now - begin).total_seconds(), 0))
    if new.phase is Phase.RESTARTING:
        RESTARTS.labels(reason).inc()
    if new.phase is Phase.SUCCEEDED:
        SUCCEEDED.inc()
    if new.phase is Phase.FAILED:
        FAILED.labels(reason).inc()
    if new.completion_time and new.running_time:
        RUN_DURATION.observe(max((new.completion_time - new.running_time).total_seconds(), 0))
