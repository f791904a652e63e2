"""Objects of a job that cannot be created: what the API server refuses, and names of other objects."""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.constants import Reason
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.job_log import log_effect
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.domain.observed import Refusal
from horovodjob_operator.domain.pod_facts import owner_uid
from horovodjob_operator.errors import Gone, Refused, Unavailable
from horovodjob_operator.kube.retry_delay import retry_delay_seconds

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 5, 300
PREFLIGHT = "azureFiles"
"""Refused object of a job that the preflight check of its shares stops."""


class RefusedObject(Exception):
    """An object of the job cannot be created as it is."""

    def __init__(self, name: str, error: Refused, reason: Reason | None = None) -> None:
        super().__init__(f"{error} (the operator keeps trying)" if error.over_quota else str(error))
        self.name, self.is_stalled = name, not error.over_quota
        self.reason = reason or (Reason.WAITING_FOR_NODES if error.over_quota else Reason.INVALID_SPEC)


def refuse(
    state: JobState, refused_object: str, reason: Reason, message: str, now: datetime, *, is_stalled: bool = True
) -> datetime:
    """Records a refusal, and returns when to reconcile the job again: at once if its message is new."""
    delay = retry_delay_seconds(state.refusal_count, first=FIRST_RETRY_SECONDS, longest=LONGEST_RETRY_SECONDS)
    retry_at, previous = now + timedelta(seconds=delay), state.refusal
    state.refuse(refused_object, Refusal(reason, message, retry_at, is_stalled))
    if previous is None or previous.message != message:
        log_effect(state.job, f"{reason}: {message}")
        return now
    return retry_at


def refuse_object(state: JobState, refused: RefusedObject, now: datetime) -> datetime:
    """Records the refusal of an object, and returns when to reconcile the job again."""
    return refuse(state, refused.name, refused.reason, str(refused), now, is_stalled=refused.is_stalled)


def name_conflict(name: str, description: str) -> RefusedObject:
    """The refusal of an object because another one, which does not belong to the job, has its name."""
    message = f"{description} exists and does not belong to this job: delete or rename it, or rename the job"
    return RefusedObject(name, Refused(message), Reason.NAME_CONFLICT)


async def existing_object(job: HorovodJob, description: str, read: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """The object with the name of an object of the job; None if it does not belong to the job.

    Raises Unavailable if the name will become free.
    """
    try:
        found = await read
    except Gone as error:
        raise Unavailable(f"{description} was deleted meanwhile") from error
    owner = owner_uid(found["metadata"])
    if owner not in ("", job.metadata.uid):
        raise Unavailable(f"{description} of an earlier job with the same name still exists")
    return found if owner == job.metadata.uid else None
