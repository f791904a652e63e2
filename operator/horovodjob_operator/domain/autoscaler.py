"""What an autoscaler of the cluster reports about pods without a node. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

# The cluster autoscaler gives up on a node after 15 minutes by default (max-node-provision-time), and then decides
# again. The rest is for this decision and its event.
NODE_TIME = timedelta(minutes=20)
# Parts of the messages of the cluster autoscaler, and what they mean.
CAUSES = {
    "max node group size reached": "a node pool is at its maximum size",
    "max total nodes in cluster reached": "the cluster is at its maximum size",
    "max cluster": "the cluster is at its resource limits",
    "in backoff after failed scale-up": "adding one has just failed, for example because the region has no quota",
    "quota": "the quota of the region is used up",
}


class AutoscalerReason(StrEnum):
    """Reasons of the events about a pod that has no node: of the cluster autoscaler, and Nominated of Karpenter."""

    TRIGGERED = "TriggeredScaleUp"
    NOMINATED = "Nominated"
    NOT_TRIGGERED = "NotTriggerScaleUp"
    FAILED = "FailedScaleUp"


@dataclass(frozen=True, slots=True)
class AutoscalerEvent:
    """The newest event of an autoscaler about a pod of the job."""

    reason: AutoscalerReason
    message: str
    at: datetime

    @property
    def adds_nodes(self) -> bool:
        """Whether nodes are on their way."""
        return self.reason in (AutoscalerReason.TRIGGERED, AutoscalerReason.NOMINATED)

    @property
    def refusal(self) -> str:
        """Why no node comes, as a clause."""
        cause = next((cause for part, cause in CAUSES.items() if part in self.message.lower()), "")
        return f"the autoscaler adds no node{f', because {cause}' if cause else ''} ({self.message})"


@dataclass(frozen=True, slots=True)
class ComingNodes:
    """Nodes that are on their way."""

    since: datetime
    source: str
    """The event or object that reports them."""

    @property
    def until(self) -> datetime:
        """When the wait for them ends."""
        return self.since + NODE_TIME

    def __str__(self) -> str:
        times = f"since {self.since:%H:%M:%SZ}, and are waited for until {self.until:%H:%M:%SZ}"
        return f"nodes are on their way {times} ({self.source})"
