"""Finds out with a dry run whether a refused object can be created now."""

from collections.abc import Callable
from datetime import datetime

from horovodjob.api.constants import Reason
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.job_secrets import new_secret
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.pod_creation import PodCreation
from horovodjob_operator.controller.refusals import PREFLIGHT, RefusedObject, refuse, refuse_object
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.auxiliary_resources import auxiliary_resources
from horovodjob_operator.domain.resources.pod_group import job_pod_group, not_served_message
from horovodjob_operator.errors import AlreadyExists, InvalidJob, NotServed, Refused
from horovodjob_operator.kube.preflight import Preflight
from horovodjob_operator.kube.writer import Writer


class DryRun:
    """Sends dry-run requests."""

    def __init__(
        self, writer: Writer, creation: PodCreation, clock: Callable[[], datetime], preflight: Preflight | None
    ) -> None:
        self._writer, self._creation, self._clock, self._preflight = writer, creation, clock, preflight

    async def recheck(self, state: JobState, now: datetime) -> datetime:
        """Renews or ends the refusal of the job, and returns when to reconcile it again."""
        job, refused = state.job, state.refused_object
        if refused == PREFLIGHT:
            return await self._recheck_preflight(state)
        try:
            await self._send(job, refused)
        except AlreadyExists:
            message = state.refusal.message if state.refusal else ""
            return refuse(state, refused, Reason.NAME_CONFLICT, message, now)
        except NotServed:
            return refuse(state, refused, Reason.INVALID_SPEC, not_served_message(job.spec.scheduling.gang), now)
        except Refused as error:
            return refuse_object(state, RefusedObject(refused, error), now)
        except InvalidJob as error:
            return refuse(state, refused, Reason.INVALID_SPEC, str(error), now)
        state.accept()
        return now

    async def _recheck_preflight(self, state: JobState) -> datetime:
        problem = await self._preflight.problem(state.job) if self._preflight else None
        if problem:
            return refuse(state, PREFLIGHT, *problem, self._clock())
        state.accept()
        return self._clock()

    async def _send(self, job: HorovodJob, refused: str) -> None:
        group = job_pod_group(job)
        bodies = (new_secret(job), *auxiliary_resources(job), *([group] if group else []))
        others = {body["kind"]: body for body in bodies}
        if refused in others:
            await self._writer.create(others[refused], dry_run=True)
        elif refused == names.launcher_name(job):
            await self._writer.create_pod(self._creation.launcher(job), dry_run=True)
        else:
            index = names.worker_index(refused) if refused else 0
            await self._writer.create_pod(self._creation.worker(job, index), dry_run=True)
