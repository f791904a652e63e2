"""Metrics of the operator and of its jobs, in Prometheus names and base units."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob.api.vocabulary import ConditionType, Phase
from horovodjob_operator.domain.progress import Result

REGISTRY = CollectorRegistry()
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
    "One pass over one job, its API calls included.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10),
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter("horovodjob_operator_reconcile_errors", "Passes that ended in an error.", registry=REGISTRY)
API_REQUESTS = Counter(
    "horovodjob_operator_api_requests", "Requests to the API server.", ["verb", "resource", "code"], registry=REGISTRY
)
REPORTS = Counter(
    "horovodjob_operator_progress_reports",
    "Reports of progress, by what became of them.",
    ["result"],
    registry=REGISTRY,
)
for result in Result:
    REPORTS.labels(result)
LEADER = Gauge("horovodjob_operator_leader", "1 where this process is the leader.", registry=REGISTRY)
WATCH_AGE = Gauge(
    "horovodjob_operator_watch_age_seconds",
    "Seconds since a watch last gave a sign of life.",
    ["resource"],
    registry=REGISTRY,
)


class JobStates(Collector):
    """What the jobs' status says, read from the cache when asked: series of deleted jobs disappear."""

    def __init__(self, jobs: Callable[[], Iterable[HorovodJob]]) -> None:
        self.jobs = jobs

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Jobs by namespace and phase, and how far those that run have told to be."""
        yield self._phases()
        yield from self._training()

    def _phases(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily("horovodjob_jobs", "Jobs by phase.", labels=["namespace", "phase"])
        tally = Tally((job.metadata.namespace, job.status.phase or Phase.QUEUED) for job in self.jobs())
        for (namespace, phase), count in sorted(tally.items()):
            family.add_metric([namespace, phase], count)
        return family

    def _training(self) -> Iterable[GaugeMetricFamily]:
        labels = ["namespace", "name"]
        progress = GaugeMetricFamily("horovodjob_training_progress_ratio", "Done share of the training.", labels=labels)
        speed = GaugeMetricFamily(
            "horovodjob_training_samples_per_second", "Samples a second, all ranks together.", labels=labels
        )
        for job in self.jobs():
            training = job.status.training
            if training is None or job.status.phase is not Phase.RUNNING:
                continue
            progress.add_metric(list(job.key), training.progress)
            if training.samples_per_second is not None:
                speed.add_metric(list(job.key), training.samples_per_second)
        yield from (progress, speed)


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
