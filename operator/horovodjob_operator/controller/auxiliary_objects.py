"""Creates, recreates and deletes the optional objects of a job: its NetworkPolicy and its Service."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.job_log import log_effect, log_warning
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.refusals import RefusedObject, existing_object, name_conflict
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.pod_facts import owner_uid
from horovodjob_operator.domain.resources.auxiliary_resources import auxiliary_resources
from horovodjob_operator.errors import AlreadyExists, Conflict, Gone, Refused
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.writer import Writer

RECHECK_SECONDS = 60


class AuxiliaryObjects:
    """The optional objects of jobs."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer, self._reader = writer, reader

    async def ensure(self, state: JobState) -> None:
        """Creates the objects that the spec enables and deletes the others. Raises RefusedObject, Unavailable."""
        await asyncio.gather(
            *(self._create(state, body) for body in auxiliary_resources(state.job)),
            *(self._delete(state, body) for body in auxiliary_resources(state.job, enabled=False)),
        )

    async def recreate_deleted(self, state: JobState, context: JobContext) -> datetime | None:
        """Recreates objects that a user has deleted, and returns when to check them again."""
        job, launcher = state.job, context.observed.launcher
        if not launcher or not launcher.is_active or launcher.is_terminating or launcher.attempt != job.status.attempt:
            return None  # The launcher is created after these objects.
        if state.auxiliary_checked_at:
            due = state.auxiliary_checked_at + timedelta(seconds=RECHECK_SECONDS)
            if context.now < due:
                return due
        for body in auxiliary_resources(job):
            try:
                await self._reader.partial_object(body)
            except Gone:
                await self._recreate(job, body)
        state.auxiliary_objects_checked(context.now)
        return None

    async def _recreate(self, job: HorovodJob, body: dict[str, Any]) -> None:
        try:
            await self._writer.create(body)
            log_effect(job, f"recreated the deleted {_description(body)}")
        except (AlreadyExists, Refused) as error:
            # The pods run already, so neither a quota nor an object of another owner is a reason to delete them.
            log_warning(job, f"{_description(body)} cannot be recreated: {error}")

    async def _create(self, state: JobState, body: dict[str, Any]) -> None:
        job, kind, description = state.job, body["kind"], _description(body)
        try:
            await self._writer.create(body)
        except AlreadyExists as error:
            if kind not in state.owned_kinds:
                existing = await existing_object(job, description, self._reader.partial_object(body))
                if existing is None:
                    raise name_conflict(kind, description) from error
        except Refused as error:
            raise RefusedObject(kind, error) from error
        state.object_exists(kind)

    async def _delete(self, state: JobState, body: dict[str, Any]) -> None:
        """Deletes an object that an earlier spec of the job enabled, before a suspension."""
        job, kind, description = state.job, body["kind"], _description(body)
        has_first_spec = job.metadata.generation == 1 or job.status.attempt == 1
        if kind in state.absent_kinds or (has_first_spec and kind not in state.owned_kinds):
            return
        try:
            found = await self._reader.partial_object(body)
            if owner_uid(found["metadata"]) == job.metadata.uid:
                await self._writer.delete(body, found["metadata"]["uid"])
                log_effect(job, f"deleted {description}, which the spec no longer enables")
        except Refused as error:  # The operator has the rights of an older release.
            log_warning(job, f"{description} cannot be deleted: {error}")
        except (Gone, Conflict):
            pass
        state.object_is_absent(kind)


def _description(body: dict[str, Any]) -> str:
    return f"{body['kind']} {body['metadata']['name']}"
