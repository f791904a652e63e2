"""Creates and deletes the PodGroup of a job."""

import contextlib
from typing import Any

from horovodjob.api.constants import Gang
from horovodjob_operator.controller.job_log import log_effect
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.refusals import RefusedObject, existing_object, name_conflict
from horovodjob_operator.domain.observed import Observed
from horovodjob_operator.domain.resources.pod_group import not_served_message
from horovodjob_operator.errors import AlreadyExists, Gone, NotServed, Refused, Unavailable
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.writer import Writer


class JobPodGroups:
    """The PodGroups of jobs."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer, self._reader = writer, reader

    async def ensure(self, state: JobState, observed: Observed, pod_group: dict[str, Any]) -> None:
        """Creates the PodGroup before its pods. Raises RefusedObject, and Unavailable after deleting an older one.

        A PodGroup is immutable, and a job can be resumed with another size. If the job has no pods and its spec has
        changed, the size that an existing group was created for is unknown.
        """
        job, kind = state.job, state.job.spec.scheduling.gang
        description = f"PodGroup {job.metadata.name}"
        try:
            await self._writer.create(pod_group)
        except AlreadyExists as error:
            if state.pod_group is not kind and not observed.pods:
                if await existing_object(job, description, self._reader.partial_object(pod_group)) is None:
                    raise name_conflict(pod_group["kind"], description) from error
                if job.metadata.generation > 1:
                    await self._writer.delete_pod_group(job, kind)
                    raise Unavailable(f"{description} is an old one, and is recreated after its deletion") from error
        except NotServed as error:
            raise RefusedObject(pod_group["kind"], Refused(not_served_message(kind))) from error
        except Refused as error:
            raise RefusedObject(pod_group["kind"], error) from error
        state.pod_group_created(kind)

    async def delete(self, state: JobState, kind: Gang) -> None:
        """Deletes the PodGroup of the job."""
        with contextlib.suppress(Gone):
            await self._writer.delete_pod_group(state.job, kind)
        state.pod_group_deleted()
        log_effect(state.job, "deleted the PodGroup")
