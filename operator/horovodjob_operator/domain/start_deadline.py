"""When a Starting job should run at the latest, from its status. Pure."""

from datetime import datetime, timedelta

from horovodjob.api.constants import ConditionType, Gang, Phase
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.checks.backoff import MAX_DELAY_SECONDS


def start_deadline(job: HorovodJob) -> datetime | None:
    """When the ranks of a Starting job should run at the latest; None in other phases, or if that is unknown.

    Once all pods have a node, the job has scheduling.timeoutSeconds, and in addition that of its preparation.
    """
    scheduled_at = _scheduled_at(job) if job.status.phase is Phase.STARTING else None
    if scheduled_at is None:
        return None
    preparation = job.spec.preparation
    seconds = job.spec.scheduling.timeout_seconds + (preparation.timeout_seconds if preparation else 0)
    return scheduled_at + timedelta(seconds=seconds)


def _scheduled_at(job: HorovodJob) -> datetime | None:
    """When all pods of the attempt had a node, or a later time; None if that is unknown.

    The condition Queued changes when the phase Queued ends. A restart has no such phase: after its backoff, it gets its
    nodes within scheduling.timeoutSeconds or becomes Queued. A gang without nodes waits without a limit.
    """
    status, scheduling = job.status, job.spec.scheduling
    queued = status.condition(ConditionType.QUEUED)
    failures = [error.time for error in status.errors if error.attempt < status.attempt]
    if queued is None or not failures or failures[-1] < queued.last_transition_time:
        return queued.last_transition_time if queued else None
    if scheduling.gang is not Gang.NONE:
        return None
    return failures[-1] + timedelta(seconds=MAX_DELAY_SECONDS + scheduling.timeout_seconds)
