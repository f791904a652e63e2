"""Creates the pods of an attempt, after the objects that they need."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.auxiliary_objects import AuxiliaryObjects
from horovodjob_operator.controller.creation_pace import CreationPace
from horovodjob_operator.controller.job_log import log_effect
from horovodjob_operator.controller.job_pod_groups import JobPodGroups
from horovodjob_operator.controller.job_secrets import JobSecrets
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.refusals import RefusedObject, existing_object, name_conflict
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.domain.observed import Observed
from horovodjob_operator.domain.plan import Plan
from horovodjob_operator.domain.pod import Pod
from horovodjob_operator.domain.pod_facts import OwnedPod, owned_pod
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.pod_group import job_pod_group
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.errors import AlreadyExists, Refused
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.reader import Reader
from horovodjob_operator.kube.writer import Writer

# A job with thousands of pods must leave requests for other jobs.
MAX_CONCURRENT_CREATIONS = 32


class PodCreation:
    """Creates pods."""

    def __init__(
        self, pods: PodCache, writer: Writer, reader: Reader, clock: Callable[[], datetime], progress_url: str
    ) -> None:
        self._pods, self._writer, self._reader, self._clock = pods, writer, reader, clock
        self._progress_url = progress_url
        self._pace = CreationPace(pods)
        self.secrets = JobSecrets(pods, writer, clock)
        self.pod_groups = JobPodGroups(writer, reader)
        self._auxiliary_objects = AuxiliaryObjects(writer, reader)

    def launcher(self, job: HorovodJob, hosts: str = "", spec_hash: str = "") -> dict[str, Any]:
        """The launcher of the current attempt. Raises InvalidJob."""
        return launcher_pod(job, job.status.attempt, hosts, self._progress_url, spec_hash)

    def worker(self, job: HorovodJob, index: int, secret_name: str = "", spec_hash: str = "") -> dict[str, Any]:
        """A worker of the current attempt. Raises InvalidJob."""
        return worker_pod(job, index, job.status.attempt, self._progress_url, secret_name, spec_hash)

    async def create(self, state: JobState, observed: Observed, plan: Plan) -> bool:
        """Creates the pods of the plan and the objects that they need; returns False if it left pods for later.

        Raises InvalidJob, RefusedObject, Unavailable.
        """
        job = state.job
        if not plan.create_launcher and self._pace.is_exceeded(job):
            return False
        # Built before any write, so that a job that cannot be built leaves no objects.
        first = self._first_pods(job, plan)
        pod_group = job_pod_group(job)
        if plan.create_secret and not await self.secrets.ensure(state, observed):
            return True
        if plan.create_launcher:
            await self._auxiliary_objects.ensure(state)
            state.auxiliary_objects_checked(self._clock())
        if pod_group:
            await self.pod_groups.ensure(state, observed, pod_group)
        # If the API server refuses the launcher or the first worker, the others are not created.
        await _gather(self._create(job, role, index, pod, plan) for role, index, pod in first)
        workers, created = iter(plan.create_workers[1:]), len(plan.create_workers[:1])

        async def create_workers() -> None:
            nonlocal created
            for index in workers:
                if self._pace.is_exceeded(job):
                    return
                created += 1
                pod = self.worker(job, index, plan.secret_name, plan.spec_hash)
                await self._create(job, Role.WORKER, index, pod, plan)

        await _gather(create_workers() for _ in plan.create_workers[1 : MAX_CONCURRENT_CREATIONS + 1])
        if first:
            launcher = "the launcher and " if plan.create_launcher else ""
            count = count_text(created, "worker")
            log_effect(job, f"created {launcher}{count}, attempt {job.status.attempt}")
        return created == len(plan.create_workers)

    def _first_pods(self, job: HorovodJob, plan: Plan) -> list[tuple[Role, int, dict[str, Any]]]:
        """The launcher and the first worker, as far as the plan creates them."""
        workers = [
            (Role.WORKER, index, self.worker(job, index, plan.secret_name, plan.spec_hash))
            for index in plan.create_workers[:1]
        ]
        launchers = [(Role.LAUNCHER, 0, self.launcher(job, plan.hosts, plan.spec_hash))] if plan.create_launcher else []
        return [*launchers, *workers]

    async def _create(self, job: HorovodJob, role: Role, index: int, pod: Mapping[str, Any], plan: Plan) -> None:
        name = pod["metadata"]["name"]
        self._pace.record(job)
        try:
            metadata = await self._writer.create_pod(pod)
        except AlreadyExists:
            self._pods.store(await self._existing(job, name))
            return
        except Refused as error:
            raise RefusedObject(name, error) from error
        facts = Pod(
            name=name,
            uid=metadata["uid"],
            role=role,
            index=index,
            attempt=job.status.attempt,
            owner_uid=job.metadata.uid,
            version=int(metadata["resourceVersion"]),
            created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
            hosts=plan.hosts if role is Role.LAUNCHER else "",
            gang=job.spec.scheduling.gang,
            secret_name=plan.secret_name,
            spec_hash=plan.spec_hash,
        )
        self._pods.store(OwnedPod(job.key, facts))

    async def _existing(self, job: HorovodJob, name: str) -> OwnedPod:
        """The pod of the job that has this name and that the watch has not reported yet. Raises RefusedObject."""
        description = f"pod {name}"
        found = await existing_object(job, description, self._reader.pod(job.metadata.namespace, name))
        owned = owned_pod(found) if found else None
        if owned is None:
            raise name_conflict(name, description)
        return owned


async def _gather(creations: Iterable[Awaitable[None]]) -> None:
    """Waits for all, then raises the error of one of them, preferably a refusal."""
    results = await asyncio.gather(*creations, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: not isinstance(error, RefusedObject)):
        raise error
