"""Jobs whose rank 0 reports no more, which is no evidence of a stall. Pure.

The network between rank 0 and this process can have failed while the training runs.
So the condition becomes Unknown, and no attempt ends because of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The last report of the watch of rank 0 that this process has received."""

    attempt: int
    pod_uid: str
    at: datetime
    receiving_seconds: float
    """How long this process had been able to receive reports by then."""
    next_within: float
    """Within how many seconds the watch sends its next report; 0 if it has announced none."""

    def is_about(self, job: HorovodJob) -> bool:
        """Whether the attempt of the report runs, and the watch has announced another report."""
        return self.next_within > 0 and job.status.phase is Phase.RUNNING and job.status.attempt == self.attempt

    def seconds_left(self, receiving_seconds: float) -> float:
        """Seconds until the announced report is overdue."""
        return self.receiving_seconds + self.next_within - receiving_seconds


@dataclass(frozen=True, slots=True)
class Silence:
    """The announced report of a pod is overdue."""

    pod: Pod
    since: datetime


def silence(
    job: HorovodJob,
    heartbeat: Heartbeat | None,
    others: Iterable[Heartbeat],
    pods: Iterable[Pod],
    receiving_seconds: float,
) -> Silence | None:
    """The silence of a job; None if it reports, has announced nothing, or if this process may receive no reports.

    `others` are the heartbeats of other jobs. If none of them is recent, the network to this process has failed rather
    than several trainings at once.
    """
    if heartbeat is None or not heartbeat.is_about(job) or heartbeat.seconds_left(receiving_seconds) > 0:
        return None
    others = tuple(others)
    if others and all(other.seconds_left(receiving_seconds) < other.next_within / 2 for other in others):
        return None
    pod = next((pod for pod in pods if pod.uid == heartbeat.pod_uid), None)
    if pod is None or not pod.is_active or pod.is_terminating:
        return None  # Rank 0 of an elastic job continues in another pod; a pod that has ended is reported otherwise.
    return Silence(pod, heartbeat.at)
