"""What holds in each phase of a job, and which phases may follow it."""

from collections.abc import Set
from dataclasses import dataclass

FINISHED = ("Succeeded", "Failed")
# The domain reports each of these phases; the operator stores it only if it lasts.
HELD_BACK = ("Queued", "Starting")
# What can happen to a job whose pods exist. The operator leaves out phases that pass while it is down.
LATER = frozenset({"Starting", "Running", "Restarting", "Succeeded"})
ENDS = frozenset({"Suspended", "Terminating", "Failed"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds in a phase."""

    followers: Set[str]
    """The phases that the domain may report next."""
    true: Set[str]
    """The conditions that are True; Stalled stands in the place of Reconciling while something is wrong."""
    execution_state: str
    health: tuple[str, str, str]
    """The health in kstatus, Argo CD and Flux."""


IN_PROGRESS = ("InProgress", "Progressing", "InProgress")
STALLED = ("Failed", "Degraded", "Failed")
# A job that the operator has not reported yet.
NEW: Set[str] = frozenset({"Queued", "Suspended", "Terminating"})
PHASES: dict[str, Facts] = {
    "Queued": Facts(LATER | ENDS, {"Queued", "Reconciling"}, "queued", IN_PROGRESS),
    "Starting": Facts(LATER - {"Starting"} | ENDS | {"Queued"}, {"Reconciling"}, "running", IN_PROGRESS),
    "Running": Facts(
        ENDS | {"Restarting", "Succeeded"},
        {"Running", "Prepared", "Ready"},
        "running",
        ("Current", "Progressing", "InProgress"),
    ),
    "Restarting": Facts(LATER - {"Restarting"} | ENDS | {"Queued"}, {"Reconciling"}, "queued", IN_PROGRESS),
    "Suspended": Facts(
        {"Queued", "Terminating"}, {"Suspended", "Ready"}, "queued", ("Current", "Suspended", "InProgress")
    ),
    "Terminating": Facts({"Failed", "Succeeded"}, {"Reconciling"}, "terminating", IN_PROGRESS),
    "Succeeded": Facts(frozenset(), {"Succeeded", "Ready"}, "succeeded", ("Current", "Healthy", "Current")),
    "Failed": Facts(frozenset(), {"Failed", "Stalled"}, "failed", STALLED),
}


# What may follow in addition in a job of a queue: the queue takes the quota, or can never admit the job.
OF_QUEUES = {"Running": "Queued", "Suspended": "Failed"}


def may_follow(before: str | None, after: str) -> bool:
    """Whether the domain may report phase `after` next; a job that is new has no phase."""
    return after in (PHASES[before].followers if before else NEW)


def may_be_stored_after(before: str | None, after: str, *, is_in_queue: bool = False) -> bool:
    """Whether a stored status may change to phase `after`: that of a new job may leave out what is held back."""
    ways = (before, *HELD_BACK) if not before else (before,)
    return any(may_follow(way, after) for way in ways) or (is_in_queue and OF_QUEUES.get(before or "") == after)
