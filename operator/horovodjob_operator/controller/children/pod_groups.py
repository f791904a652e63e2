"""The PodGroups of jobs, in the version that the API server serves."""

from typing import Any

from horovodjob.api.constants import Gang
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.resources.pod_group import (
    NATIVE_GROUP,
    VOLCANO_API_VERSION,
    job_pod_group,
    native_version,
)
from horovodjob_operator.errors import NotServed
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer


class PodGroups:
    """Builds and deletes PodGroups. The version is read once, and again when the API server does not serve it."""

    def __init__(self, writer: Writer, reader: Reader) -> None:
        self._writer, self._reader = writer, reader
        self._native_version = ""

    async def body(self, job: HorovodJob) -> dict[str, Any] | None:
        """The PodGroup, if the spec requires one. Raises NotServed, Unavailable, InvalidJob."""
        gang = job.spec.scheduling.gang
        return None if gang is Gang.NONE else job_pod_group(job, await self._api_version(gang))

    async def delete(self, job: HorovodJob, kind: Gang) -> None:
        """Deletes the PodGroup of the job, if it has one. Raises Gone."""
        is_version_new = not self._native_version
        try:
            await self._writer.delete_collection(job, await self._api_version(kind), "PodGroup")
        except NotServed:
            self.forget_version()
            if kind is not Gang.NATIVE or is_version_new:
                raise
            await self.delete(job, kind)

    def forget_version(self) -> None:
        """Reads the version again: the API server does not serve it any more, such as after an upgrade."""
        self._native_version = ""

    async def _api_version(self, kind: Gang) -> str:
        if kind is Gang.VOLCANO:
            return VOLCANO_API_VERSION
        if not self._native_version:
            version = native_version(await self._reader.served_versions(NATIVE_GROUP))
            if version is None:
                raise NotServed(f"the API server serves no PodGroup of {NATIVE_GROUP}")
            self._native_version = version
        return self._native_version
