"""Events of a job: those of a change of its status, and those that a recorded status alone can still tell."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from horovodjob.api.constants import ConditionType, EventReason, Phase, Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.status import HorovodJobStatus, JobError
from horovodjob_operator.domain.checks.table import counted

# kubectl describe lists events by name, and several can be of the same second: these come first, in this order.
_FIRST = ("created", "attemptended", "schedulingtimeout", "resumed", "admitted", "workersready", "started")

# Phases in which all pods of the attempt have a node.
_PLACED = (Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class Event:
    """Something to report in `kubectl describe`. Its name follows from the status, so it can be posted once only."""

    reason: EventReason
    note: str
    attempt: int
    since: datetime
    """When it happened, to the second, according to the status."""
    warning: bool = False
    what: str = ""
    """What it is about in its name, where its reason alone does not distinguish it, or cannot be derived again."""

    @property
    def identity(self) -> str:
        """Tells it apart from the other events of its job; sorts by time."""
        what = self.what or self.reason.lower()
        place = _FIRST.index(what) if what in _FIRST else len(_FIRST)
        return f"{int(self.since.timestamp()):x}.{self.attempt}.{place}-{what}"


def events_between(job: HorovodJob, old: HorovodJobStatus, new: HorovodJobStatus) -> tuple[Event, ...]:
    """What to report about the change of status: each event once per transition."""
    events: list[Event] = []
    changed = new.phase is not old.phase
    if changed and old.phase is Phase.SUSPENDED and new.phase is not Phase.TERMINATING:
        events.append(_resumed(new))
    if old.phase is None and new.phase not in (Phase.SUSPENDED, Phase.TERMINATING):
        events.append(_created(job, new))
    if new.phase in _PLACED and old.phase not in _PLACED:
        events.append(_admitted(new))
    if _is_prepared(new) and not _is_true(old, ConditionType.PREPARED):
        events.append(_workers_ready(job, new))
    if new.attempt != old.attempt and new.phase is Phase.QUEUED and old.phase is not None:
        events.append(_scheduling_timeout(new))
    if changed and new.phase is Phase.RESTARTING:
        events.append(_attempt_ended(new, taken=new.preemptions > old.preemptions))
    elif changed:
        events += _of_phase(new)
    elif new.phase is Phase.RUNNING:
        events += _elastic_events(old, new)
    return tuple(events)


def recorded_events(job: HorovodJob) -> tuple[Event, ...]:
    """What the recorded status says has happened to the present attempt, as `events_between` has reported it.

    An operator that was killed after it had written the status may not have posted it.
    """
    status = job.status
    if not status.conditions or not status.start_scripts:
        return ()  # release 0.1.0, which records no such version, gave its events names that cannot be derived
    events: list[Event] = []
    first, suspended = _first_seen(status), _changed_at(status, ConditionType.SUSPENDED)
    if status.phase in (Phase.QUEUED, *_PLACED) and status.start_time == suspended:
        if suspended != first and suspended >= _began_at(status, first):
            events.append(_resumed(status))
        elif suspended == first and status.attempt == 1:
            events.append(_created(job, status))
    if status.phase in _PLACED:
        events.append(_admitted(status))
    if _is_prepared(status):
        events.append(_workers_ready(job, status))
    error = _ended_before(status)
    if error and error.reason == _ready(status)[0]:
        if status.phase is Phase.RESTARTING:
            events.append(_attempt_ended(status, taken=_was_taken(error)))
        elif status.phase is Phase.QUEUED and error.reason == Reason.SCHEDULING_TIMEOUT:
            events.append(_scheduling_timeout(status))
    events += _of_phase(status)
    if status.phase is Phase.RUNNING:
        started = _changed_at(status, ConditionType.RUNNING)
        losses = (error for error in status.errors if error.attempt == status.attempt and error.time > started)
        events += (_lost(error, taken=_was_taken(error)) for error in losses)
    return tuple(events)


def _created(job: HorovodJob, status: HorovodJobStatus) -> Event:
    workers, slots = counted(job.spec.worker.replicas, "worker"), counted(job.spec.slots, "slot")
    note = f"creating the launcher and {workers} with {slots} each"
    return Event(EventReason.CREATED, note, status.attempt, _first_seen(status))


def _resumed(status: HorovodJobStatus) -> Event:
    since = _changed_at(status, ConditionType.SUSPENDED)
    return Event(EventReason.RESUMED, f"the job is resumed: attempt {status.attempt}", status.attempt, since)


def _admitted(status: HorovodJobStatus) -> Event:
    # Queued stays False from one attempt to the next.
    since = _began_at(status, _changed_at(status, ConditionType.QUEUED))
    return Event(EventReason.ADMITTED, f"all pods of attempt {status.attempt} have a node", status.attempt, since)


def _workers_ready(job: HorovodJob, status: HorovodJobStatus) -> Event:
    workers = counted(job.spec.worker.replicas, "worker")
    since = _changed_at(status, ConditionType.PREPARED)
    return Event(EventReason.WORKERS_READY, f"{workers} ready: ssh answers", status.attempt, since)


def _scheduling_timeout(status: HorovodJobStatus) -> Event:
    since = _began_at(status, _first_seen(status))
    return Event(EventReason.SCHEDULING_TIMEOUT, _ready(status)[1], status.attempt, since, warning=True)


def _attempt_ended(status: HorovodJobStatus, *, taken: bool) -> Event:
    reason = EventReason.PREEMPTED if taken else EventReason.RESTARTING
    since = _began_at(status, _first_seen(status))
    return Event(reason, _ready(status)[1], status.attempt, since, warning=True, what="attemptended")


def _lost(error: JobError, *, taken: bool) -> Event:
    reason = EventReason.PREEMPTED if taken else EventReason.RESIZED
    return Event(reason, error.message, error.attempt, error.time, warning=True, what=f"lost-{error.pod}".rstrip("-"))


def _elastic_events(old: HorovodJobStatus, new: HorovodJobStatus) -> Iterable[Event]:
    """Workers that come and go while the ranks run."""
    for error in new.errors:
        if error not in old.errors:
            yield _lost(error, taken=new.preemptions > old.preemptions)
    replicas, before = (status.workers_ready.partition("/")[2] for status in (new, old))
    if replicas != before:
        note, what = f"worker.replicas is {replicas}, was {before}", f"resized-{new.observed_generation}"
        yield Event(EventReason.RESIZED, note, new.attempt, _changed_at(new, ConditionType.RUNNING), what=what)


def _of_phase(status: HorovodJobStatus) -> Iterator[Event]:
    """What the phase itself reports."""
    note, attempt = _ready(status)[1], status.attempt
    match status.phase:
        case Phase.RUNNING:
            yield Event(EventReason.STARTED, note, attempt, _changed_at(status, ConditionType.RUNNING))
        case Phase.SUSPENDED:
            yield Event(EventReason.SUSPENDED, note, attempt, _changed_at(status, ConditionType.SUSPENDED))
        case Phase.SUCCEEDED:
            yield Event(EventReason.SUCCEEDED, note, attempt, _changed_at(status, ConditionType.SUCCEEDED))
        case Phase.FAILED:
            since = _changed_at(status, ConditionType.FAILED)
            yield Event(EventReason.FAILED, note, attempt, since, warning=True)


def _is_true(status: HorovodJobStatus, type_: ConditionType) -> bool:
    condition = status.condition(type_)
    return condition is not None and condition.status == "True"


def _is_prepared(status: HorovodJobStatus) -> bool:
    return status.phase in _PLACED and _is_true(status, ConditionType.PREPARED)


def _ready(status: HorovodJobStatus) -> tuple[str, str]:
    """Reason and message of the condition that sums up the others."""
    ready = status.condition(ConditionType.READY)
    return (ready.reason, ready.message) if ready else ("", "")


def _changed_at(status: HorovodJobStatus, type_: ConditionType) -> datetime:
    condition = status.condition(type_)
    return condition.last_transition_time if condition else _first_seen(status)


def _first_seen(status: HorovodJobStatus) -> datetime:
    """When the job got its first status: the conditions about its end have changed at most once since then."""
    return min(condition.last_transition_time for condition in status.conditions)


def _ended_before(status: HorovodJobStatus) -> JobError | None:
    """Why the attempt before the present one ended, where it did by an error."""
    errors = (error for error in reversed(status.errors) if error.attempt == status.attempt - 1)
    return next(errors, None)


def _began_at(status: HorovodJobStatus, earliest: datetime) -> datetime:
    """When the present attempt began, if that is later than `earliest`."""
    error = _ended_before(status)
    return max(error.time, earliest) if error else earliest


def _was_taken(error: JobError) -> bool:
    """Whether the platform took the pod, as far as the error shows: its container did not end by itself."""
    taken = error.reason in (Reason.EVICTED, Reason.NODE_LOST)
    return taken or (error.reason in (Reason.WORKER_LOST, Reason.LAUNCHER_FAILED) and not error.container)
