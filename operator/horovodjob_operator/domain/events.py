"""Events of a job: those of a status change, and those that follow from a recorded status. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus, JobError
from horovodjob_operator.domain.messages import count_text

# `kubectl describe` sorts events by name, and several can have the same time: these are first, in this order.
_FIRST = ("created", "attemptended", "schedulingtimeout", "resumed", "admitted", "workersready", "started")

# Phases in which all pods of the attempt have a node.
_PLACED = (Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job. Its name follows from the status, so the API server stores it once."""

    reason: EventReason
    note: str
    attempt: int
    since: datetime
    """When it happened according to the status, with a resolution of a second."""
    is_warning: bool = False
    subject: str = ""
    """Part of the name that replaces the reason, where the reason is ambiguous or cannot be derived again."""
    is_recorded: bool = True
    """Whether `recorded_events` derives the event from the new status."""

    @property
    def identity(self) -> str:
        """Unique among the events of the job; sorts by time."""
        subject = self.subject or self.reason.lower()
        position = _FIRST.index(subject) if subject in _FIRST else len(_FIRST)
        return f"{int(self.since.timestamp()):x}.{self.attempt}.{position}-{subject}"


def events_between(job: HorovodJob, old: HorovodJobStatus, new: HorovodJobStatus) -> tuple[Event, ...]:
    """Events of a status change, each once per transition."""
    events: list[Event] = []
    is_transition = new.phase is not old.phase
    if is_transition and old.phase is Phase.SUSPENDED and new.phase is not Phase.TERMINATING:
        events.append(_resumed(new))
    if old.phase is None and new.phase not in (Phase.SUSPENDED, Phase.TERMINATING):
        events.append(_created(job, new))
    if new.phase in _PLACED and old.phase not in _PLACED:
        events.append(_admitted(new))
    if _is_prepared(new) and not _is_true(old, ConditionType.PREPARED):
        events.append(_workers_ready(job, new))
    if new.attempt != old.attempt and new.phase is Phase.QUEUED and old.phase is not None:
        events.append(_scheduling_timeout(new))
    if is_transition and new.phase is Phase.RESTARTING:
        events.append(_attempt_ended(new, is_disruption=new.preemptions > old.preemptions))
    elif is_transition:
        events += _phase_events(new)
    elif new.phase is Phase.RUNNING:
        events += _elastic_events(old, new)
    return tuple(events)


def recorded_events(job: HorovodJob) -> tuple[Event, ...]:
    """Events of the current attempt, derived from the recorded status, equal to those of `events_between`.

    An operator that was killed after it wrote the status may not have posted them.
    """
    status = job.status
    if not status.conditions or not status.start_scripts:
        return ()  # Names of events of release 0.1.0, which records no version of the scripts, cannot be derived.
    events: list[Event] = []
    first, suspended = _first_status_at(status), _transition_time(status, ConditionType.SUSPENDED)
    if status.phase in (Phase.QUEUED, *_PLACED) and status.start_time == suspended:
        # Times have a resolution of a second. Without an error before it, a later attempt follows a suspension.
        is_resumed = suspended != first or (status.attempt > 1 and _previous_error(status) is None)
        if is_resumed and suspended >= _attempt_start(status, first):
            events.append(_resumed(status))
        elif suspended == first and status.attempt == 1:
            events.append(_created(job, status))
    if status.phase in _PLACED:
        events.append(_admitted(status))
    if _is_prepared(status):
        events.append(_workers_ready(job, status))
    error = _previous_error(status)
    if error and error.reason == _ready_reason(status)[0]:
        if status.phase is Phase.RESTARTING:
            events.append(_attempt_ended(status, is_disruption=_is_disruption(error)))
        elif status.phase is Phase.QUEUED and error.reason == Reason.SCHEDULING_TIMEOUT:
            events.append(_scheduling_timeout(status))
    events += _phase_events(status)
    if status.phase is Phase.RUNNING:
        started = _transition_time(status, ConditionType.RUNNING)
        losses = (error for error in status.errors if error.attempt == status.attempt and error.time > started)
        events += (_worker_lost(error, is_disruption=_is_disruption(error)) for error in losses)
    return tuple(events)


def _created(job: HorovodJob, status: HorovodJobStatus) -> Event:
    workers, slots = count_text(job.spec.worker.replicas, "worker"), count_text(job.spec.slots, "slot")
    note = f"creating the launcher and {workers} with {slots} each"
    return Event(EventReason.CREATED, note, status.attempt, _first_status_at(status))


def _resumed(status: HorovodJobStatus) -> Event:
    since = _transition_time(status, ConditionType.SUSPENDED)
    return Event(EventReason.RESUMED, f"the job is resumed: attempt {status.attempt}", status.attempt, since)


def _admitted(status: HorovodJobStatus) -> Event:
    # The condition Queued stays False from one attempt to the next.
    since = _attempt_start(status, _transition_time(status, ConditionType.QUEUED))
    return Event(EventReason.ADMITTED, f"all pods of attempt {status.attempt} have a node", status.attempt, since)


def _workers_ready(job: HorovodJob, status: HorovodJobStatus) -> Event:
    workers = count_text(job.spec.worker.replicas, "worker")
    since = _transition_time(status, ConditionType.PREPARED)
    return Event(EventReason.WORKERS_READY, f"{workers} ready: ssh answers", status.attempt, since)


def _scheduling_timeout(status: HorovodJobStatus) -> Event:
    since = _attempt_start(status, _first_status_at(status))
    return Event(EventReason.SCHEDULING_TIMEOUT, _ready_reason(status)[1], status.attempt, since, is_warning=True)


def _attempt_ended(status: HorovodJobStatus, *, is_disruption: bool) -> Event:
    reason = EventReason.PREEMPTED if is_disruption else EventReason.RESTARTING
    since = _attempt_start(status, _first_status_at(status))
    return Event(reason, _ready_reason(status)[1], status.attempt, since, is_warning=True, subject="attemptended")


def _worker_lost(error: JobError, *, is_disruption: bool) -> Event:
    reason = EventReason.PREEMPTED if is_disruption else EventReason.RESIZED
    return Event(
        reason, error.message, error.attempt, error.time, is_warning=True, subject=f"lost-{error.pod}".rstrip("-")
    )


def _elastic_events(old: HorovodJobStatus, new: HorovodJobStatus) -> Iterable[Event]:
    """Workers that join and leave while the ranks run."""
    for error in new.errors:
        if error not in old.errors:
            yield _worker_lost(error, is_disruption=new.preemptions > old.preemptions)
    replicas, before = (status.workers_ready.partition("/")[2] for status in (new, old))
    if replicas != before:
        note, subject = f"worker.replicas is {replicas}, was {before}", f"resized-{new.observed_generation}"
        since = _transition_time(new, ConditionType.RUNNING)
        yield Event(EventReason.RESIZED, note, new.attempt, since, subject=subject, is_recorded=False)


def _phase_events(status: HorovodJobStatus) -> Iterator[Event]:
    """The event of a phase."""
    note, attempt = _ready_reason(status)[1], status.attempt
    match status.phase:
        case Phase.RUNNING:
            yield Event(EventReason.STARTED, note, attempt, _transition_time(status, ConditionType.RUNNING))
        case Phase.SUSPENDED:
            yield Event(EventReason.SUSPENDED, note, attempt, _transition_time(status, ConditionType.SUSPENDED))
        case Phase.SUCCEEDED:
            yield Event(EventReason.SUCCEEDED, note, attempt, _transition_time(status, ConditionType.SUCCEEDED))
        case Phase.FAILED:
            since = _transition_time(status, ConditionType.FAILED)
            yield Event(EventReason.FAILED, note, attempt, since, is_warning=True)


def _is_true(status: HorovodJobStatus, type_: ConditionType) -> bool:
    condition = status.condition(type_)
    return condition is not None and condition.status == "True"


def _is_prepared(status: HorovodJobStatus) -> bool:
    return status.phase in _PLACED and _is_true(status, ConditionType.PREPARED)


def _ready_reason(status: HorovodJobStatus) -> tuple[str, str]:
    """Reason and message of the condition Ready, which summarizes the others."""
    ready = status.condition(ConditionType.READY)
    return (ready.reason, ready.message) if ready else ("", "")


def _transition_time(status: HorovodJobStatus, type_: ConditionType) -> datetime:
    condition = status.condition(type_)
    return condition.last_transition_time if condition else _first_status_at(status)


def _first_status_at(status: HorovodJobStatus) -> datetime:
    """When the job got its first status: the conditions of its end have changed at most once since."""
    return min(condition.last_transition_time for condition in status.conditions)


def _previous_error(status: HorovodJobStatus) -> JobError | None:
    """The error that ended the previous attempt, if an error did."""
    errors = (error for error in reversed(status.errors) if error.attempt == status.attempt - 1)
    return next(errors, None)


def _attempt_start(status: HorovodJobStatus, earliest: datetime) -> datetime:
    """When the current attempt started, if that is later than `earliest`."""
    error = _previous_error(status)
    return max(error.time, earliest) if error else earliest


def _is_disruption(error: JobError) -> bool:
    """Whether the error shows a disruption: the container did not end by itself."""
    is_reported = error.reason in (Reason.EVICTED, Reason.NODE_LOST)
    return is_reported or (error.reason in (Reason.WORKER_LOST, Reason.LAUNCHER_FAILED) and not error.container)
