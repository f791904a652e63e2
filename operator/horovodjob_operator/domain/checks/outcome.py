"""The result of a check."""

from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import Phase, Role
from horovodjob_operator.domain.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the current attempt cannot continue."""

    reason: str
    """A `Reason`, or one of Kueue."""
    message: str
    pod: Pod | None = None
    pod_name: str = ""
    """Name of a pod of which nothing else is known."""
    is_disruption: bool = False
    """The platform or a user ended a pod: the failure does not count against backoffLimit."""
    is_worker_loss: bool = False
    """runPolicy.onWorkerLoss applies."""
    exit_code: int | None = None
    """Exit code of mpirun, if mpirun ended by itself."""
    steps: int | None = None
    """The number of the last completed step, if the failure is that no other followed."""
    nodes: tuple[str, ...] = ()
    """The nodes that ended the attempt."""
    node_conditions: tuple[str, ...] = ()
    """The problems that they report."""
    sentence: str = ""
    """Why the program failed, in its own words."""

    def description(self, *details: str) -> str:
        """The words of the program first, then the reason with its message and the details."""
        reason = f"{self.reason}: {self.message}"
        words, facts = (self.sentence, (reason, *details)) if self.sentence else (reason, details)
        return f"{words} ({'; '.join(facts)})" if facts else words

    @property
    def is_of_worker(self) -> bool:
        """Whether the pod that failed is a worker: only ranks of this one are concerned."""
        return self.pod is not None and self.pod.role is Role.WORKER

    @property
    def failed_pod(self) -> str:
        """Name of the pod that failed or was lost; empty if the failure concerns no single pod."""
        return self.pod.name if self.pod else self.pod_name


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of the job that a check determined."""

    phase: Phase
    reason: str
    """A `Reason`, or one of Kueue."""
    message: str
    is_stalled: bool = False
    failure: Failure | None = None
    blocked_pod: Pod | None = None
    """The pod that cannot start, if that is the reason."""
    exit_code: int | None = None
    requeue_at: datetime | None = None
    worker_losses: tuple[Failure, ...] = ()
    """Workers that an elastic job has lost and continues without."""
    is_waiting: bool = False
    """The job waits in its queue: it has no quota, and no time of it counts."""
    deletes_pods: bool = False
    """The pods of the attempt are deleted: it ends in the status first, so that their ends have no consequences."""
    frees_nodes: bool = False
    """Until the next attempt, the job has no pods: those of the attempt that has ended are deleted."""
    creates_pods: bool = True
    """Pods that the attempt needs may be created: no delay runs, and the job has quota for them."""
    is_eviction: bool = False
    """The queue has taken the quota of the pods."""
