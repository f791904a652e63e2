"""A rank 0 from which no report comes any more: what that says about its training. Pure.

Silence is no evidence of a stall: the network between rank 0 and this process can have failed while the training runs.
So the condition becomes Unknown, and no attempt ends because of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import Phase
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class Heard:
    """The last report of the watch of rank 0 that this process got."""

    attempt: int
    pod_uid: str
    at: datetime
    listened_seconds: float
    """How long this process had listened to reports by then; that time does not pass while it cannot."""
    next_within: float
    """In so many seconds at most, the watch has announced its next report; 0 if it has announced none."""

    def is_about(self, job: HorovodJob) -> bool:
        """Whether the attempt of the report runs, and the watch has announced another report."""
        return self.next_within > 0 and job.status.phase is Phase.RUNNING and job.status.attempt == self.attempt

    def seconds_left(self, listened_seconds: float) -> float:
        """The listening time until the announced report is overdue."""
        return self.listened_seconds + self.next_within - listened_seconds


@dataclass(frozen=True, slots=True)
class Silence:
    """The announced report of a pod is overdue."""

    pod: Pod
    since: datetime


def silence(
    job: HorovodJob, heard: Heard | None, others: Iterable[Heard], pods: Iterable[Pod], listened_seconds: float
) -> Silence | None:
    """The silence of a job; None if it reports, has announced nothing, or if this process can be what is cut off.

    `others` are those of other jobs. If none of them is heard either, the network to this process has failed rather
    than several trainings at once.
    """
    if heard is None or not heard.is_about(job) or heard.seconds_left(listened_seconds) > 0:
        return None
    others = tuple(others)
    if others and all(other.seconds_left(listened_seconds) < other.next_within / 2 for other in others):
        return None
    pod = next((pod for pod in pods if pod.uid == heard.pod_uid), None)
    if pod is None or not pod.is_active or pod.is_terminating:
        return None  # Rank 0 of an elastic job continues in another pod; that of another job has its own reasons.
    return Silence(pod, heard.at)
