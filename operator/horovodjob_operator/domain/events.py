"""Events of a status change. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus
from horovodjob_operator.domain.failed_nodes import repeated_node, repeated_node_text
from horovodjob_operator.domain.goodput import slowest_rank_text
from horovodjob_operator.domain.messages import count_text

# Phases in which all pods of the attempt have a node.
_PLACED = (Phase.STARTING, Phase.RUNNING)
_PHASE_EVENTS = {
    Phase.RUNNING: EventReason.STARTED,
    Phase.SUSPENDED: EventReason.SUSPENDED,
    Phase.SUCCEEDED: EventReason.SUCCEEDED,
    Phase.FAILED: EventReason.FAILED,
}


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job."""

    reason: EventReason
    note: str
    is_warning: bool = False


def events_between(job: HorovodJob, old: HorovodJobStatus, new: HorovodJobStatus) -> tuple[Event, ...]:
    """Events of a status change, each once per transition. A phase that was not written has none."""
    note, workers = _ready_message(new), count_text(job.spec.worker.replicas, "worker")
    events: list[Event] = []
    is_transition = new.phase is not old.phase
    if is_transition and old.phase is Phase.SUSPENDED and new.phase is not Phase.TERMINATING:
        events.append(Event(EventReason.RESUMED, f"the job is resumed: attempt {new.attempt}"))
    is_waiting, was_waiting = _is_waiting(new), old.phase is None or _is_waiting(old)
    if old.phase is None and is_waiting:
        events.append(Event(EventReason.QUEUED, f"waiting in queue {new.queue.name if new.queue else ''}: {note}"))
    elif was_waiting and not is_waiting:
        admission = f"{_admission(new)}: " if new.queue else ""
        if _is_created(new):
            created = f"creating the launcher and {workers} with {count_text(job.spec.slots, 'slot')} each"
            events.append(Event(EventReason.CREATED, f"{admission}{created}"))
        else:
            note = f"{admission}{note}"
    if new.phase is Phase.STARTING and old.phase not in _PLACED:
        events.append(Event(EventReason.ADMITTED, f"all pods of attempt {new.attempt} have a node"))
    if new.phase is Phase.STARTING and _is_prepared(new) and not _is_prepared(old):
        events.append(Event(EventReason.WORKERS_READY, f"{workers} ready: ssh answers"))
    if new.preemptions > old.preemptions and is_waiting:
        events.append(Event(EventReason.PREEMPTED, note, is_warning=True))
    elif new.attempt != old.attempt and new.phase is Phase.QUEUED and new.errors != old.errors:
        events.append(Event(EventReason.SCHEDULING_TIMEOUT, note, is_warning=True))
    if is_transition and new.phase is Phase.RESTARTING:
        is_disruption = new.preemptions > old.preemptions
        reason = EventReason.PREEMPTED if is_disruption else EventReason.RESTARTING
        events.append(Event(reason, note, is_warning=True))
    elif is_transition and new.phase in _PHASE_EVENTS:
        events.append(Event(_PHASE_EVENTS[new.phase], note, is_warning=new.phase is Phase.FAILED))
    elif new.phase is Phase.RUNNING and old.phase is Phase.RUNNING:
        events += _elastic_events(old, new)
    if (stall := _stall(new)) and not _stall(old):
        events.append(Event(EventReason.TRAINING_STALLED, stall, is_warning=True))
    if (slow := slowest_rank_text(new.training)) and not slowest_rank_text(old.training):
        events.append(Event(EventReason.SLOW_RANK, slow, is_warning=True))
    if new.errors != old.errors and (node := repeated_node(new.errors)) and node != repeated_node(old.errors):
        events.append(Event(EventReason.NODE_FAILS, repeated_node_text(node, new.errors), is_warning=True))
    return tuple(events)


def _is_waiting(status: HorovodJobStatus) -> bool:
    """Whether the job waits in its queue: its time has not started."""
    return status.phase is Phase.QUEUED and status.start_time is None


def _is_created(status: HorovodJobStatus) -> bool:
    """Whether an event says that pods are created. Once the ranks run it is no news, and each event costs a request."""
    return status.phase not in (Phase.RUNNING, Phase.SUCCEEDED, Phase.SUSPENDED, Phase.TERMINATING, Phase.FAILED)


def _admission(status: HorovodJobStatus) -> str:
    """The queue and the flavors that a job was admitted with."""
    queue = status.queue
    flavors = f", flavors {', '.join(queue.flavors)}" if queue and queue.flavors else ""
    return f"admitted by queue {queue.name} of ClusterQueue {queue.cluster_queue}{flavors}" if queue else ""


def _elastic_events(old: HorovodJobStatus, new: HorovodJobStatus) -> Iterable[Event]:
    """Workers that join and leave while the ranks run."""
    reason = EventReason.PREEMPTED if new.preemptions > old.preemptions else EventReason.RESIZED
    yield from (Event(reason, error.message, is_warning=True) for error in new.errors if error not in old.errors)
    replicas, before = (status.workers_ready.partition("/")[2] for status in (new, old))
    if replicas != before:
        yield Event(EventReason.RESIZED, f"worker.replicas is {replicas}, was {before}")


def _stall(status: HorovodJobStatus) -> str:
    """The message of a training that has stalled, without a restart; empty for others."""
    condition = status.condition(ConditionType.PROGRESSING)
    return condition.message if condition and condition.reason == Reason.TRAINING_STALLED else ""


def _is_prepared(status: HorovodJobStatus) -> bool:
    condition = status.condition(ConditionType.PREPARED)
    return condition is not None and condition.status == "True"


def _ready_message(status: HorovodJobStatus) -> str:
    """Message of the condition Ready, which summarizes the others."""
    ready = status.condition(ConditionType.READY)
    return ready.message if ready else ""
