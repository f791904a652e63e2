"""Creates the objects of a job: those that its pods need, and then the pods."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from horovodjob.api.constants import LABEL_ROLE, LABEL_SPEC_HASH, Reason, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.children.pod_groups import PodGroups
from horovodjob_operator.domain.checks.context import JobContext
from horovodjob_operator.domain.failed_nodes import failed_nodes
from horovodjob_operator.domain.messages import count_text
from horovodjob_operator.domain.names import AUTHORIZED_KEYS, HOST_KEY, HOST_KEY_ALIAS, KNOWN_HOSTS, PRIVATE_KEY
from horovodjob_operator.domain.plan import Plan
from horovodjob_operator.domain.pods.pod_facts import owned_pod, owner_uid
from horovodjob_operator.domain.resource_quota import PodUsage, pod_usage
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.network import network_policy, service
from horovodjob_operator.domain.resources.parts.placement import avoid_nodes
from horovodjob_operator.domain.resources.pod_group import not_served_message
from horovodjob_operator.domain.resources.secret import keys_secret, scripts_secret
from horovodjob_operator.domain.resources.worker import worker_pod
from horovodjob_operator.errors import AlreadyExists, Conflict, Gone, NameInUse, NotServed, Refused
from horovodjob_operator.kube.pod_cache import PodCache
from horovodjob_operator.kube.requests.reader import Reader
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.logs import log_effect, log_warning

# A job with thousands of pods leaves creations for other jobs: these are all that its namespace may have at a time.
MAX_CONCURRENT_CREATIONS = 24
Body = dict[str, Any]
T = TypeVar("T")


class RefusedObject(Exception):
    """An object of the job cannot be created as it is."""

    def __init__(self, error: Refused, reason: Reason | None = None, *, remedy: str = "") -> None:
        super().__init__(f"{error}{remedy}")
        self.reason = reason or error.reason


class ObjectCreation:
    """Creates what a plan requires. An object that exists must belong to the job."""

    def __init__(
        self, pods: PodCache, writer: Writer, reader: Reader, pod_groups: PodGroups, progress_url: str
    ) -> None:
        self._pods, self._writer, self._reader, self._progress_url = pods, writer, reader, progress_url
        self._pod_groups = pod_groups

    async def create(self, context: JobContext, plan: Plan, may_continue: Callable[[], bool]) -> bool:
        """Creates the objects of the plan, and returns whether all exist.

        Before each worker after the first it calls `may_continue`, and creates no further one if that is false.

        All of them are built before the first write, except for further workers, so that a job that cannot be built
        leaves no objects. Raises InvalidJob, RefusedObject, NameInUse, Unavailable.
        """
        job, first_pods = context.job, self._first_pods(context.job, plan)
        keys, others = await self._prerequisites(context, plan)
        if keys and any(pod.secret_names[:1] == plan.secret_names[:1] for pod in context.observed.pods):
            await self._require_existing(job, keys.pop())
        await gather(self._create(job, body) for body in (*keys, *others))
        if plan.create_launcher:
            await gather(self._delete_disabled(job, body) for body in _optional_objects(job, enabled=False))
        # If the API server refuses the launcher or the first worker, the others are not created.
        await gather(self._create(job, pod) for pod in first_pods)
        missing = deque(plan.create_workers[1:])

        async def create_workers() -> None:
            while missing and may_continue():
                await self._create(job, self._worker(job, missing.popleft(), plan))

        await gather(create_workers() for _ in plan.create_workers[1 : MAX_CONCURRENT_CREATIONS + 1])
        if first_pods:
            launcher = "the launcher and " if plan.create_launcher else ""
            count = count_text(len(plan.create_workers) - len(missing), "worker")
            log_effect(job, f"created {launcher}{count}, attempt {job.status.attempt}")
        return not missing

    async def dry_run(self, context: JobContext, plan: Plan) -> Mapping[Role, PodUsage]:
        """Sends dry-run requests for one object of each kind of the plan. Raises as `create` does.

        Returns what the pods count in quotas, with what the API server and webhooks have added to them.
        """
        job, first_pods = context.job, self._first_pods(context.job, plan)
        keys, others = await self._prerequisites(context, plan)
        answers = await gather(self._request(job, body, dry_run=True) for body in (*keys, *others, *first_pods))
        pods = [answer for answer in answers[len(answers) - len(first_pods) :] if answer]
        return {Role(pod["metadata"]["labels"][LABEL_ROLE]): pod_usage(pod) for pod in pods}

    async def recreate_deleted(self, job: HorovodJob) -> None:
        """Creates the optional objects again that a user has deleted."""
        for body in _optional_objects(job):
            with contextlib.suppress(AlreadyExists):
                try:
                    await self._writer.create(body)
                    log_effect(job, f"recreated the deleted {_description(body)}")
                except Refused as error:  # The pods run, so a quota is no reason to delete them.
                    log_warning(job, f"{_description(body)} cannot be recreated: {error}")

    async def _prerequisites(self, context: JobContext, plan: Plan) -> tuple[list[Body], list[Body]]:
        """The Secret with the keys, if the plan creates it; and the other objects that pods need."""
        job = context.job
        try:
            pod_group = await self._pod_groups.body(job) if plan.creates_pods else None
        except NotServed as error:
            raise RefusedObject(Refused(not_served_message(job.spec.scheduling.gang))) from error
        return (
            [keys_secret(job, generate_ssh_keys())] if plan.create_secrets else [],
            [
                *([scripts_secret(job.metadata.namespace)] if plan.create_scripts else []),
                *(_optional_objects(job) if plan.create_launcher else []),
                *([pod_group] if pod_group else []),
            ],
        )

    async def _require_existing(self, job: HorovodJob, keys: Body) -> None:
        """Raises RefusedObject if somebody has deleted the Secret with the keys that pods of the job use.

        The operator may not read a Secret, and a dry run creates nothing: new keys would not match those of the pods.
        """
        if await self._request(job, keys, dry_run=True):
            message = f"{_description(keys)} with the keys of the job was deleted: all pods are replaced"
            raise RefusedObject(Refused(message), Reason.SECRET_DELETED)

    def _first_pods(self, job: HorovodJob, plan: Plan) -> list[Body]:
        """The launcher and the first worker, as far as the plan creates them. Raises InvalidJob, AdmissionConflict."""
        workers = [self._worker(job, index, plan) for index in plan.create_workers[:1]]
        if not plan.create_launcher:
            return workers
        launcher = launcher_pod(job, job.status.attempt, plan.hosts, self._progress_url, plan.spec_hash)
        return [_placed(launcher, Role.LAUNCHER, job, plan), *workers]

    def _worker(self, job: HorovodJob, index: int, plan: Plan) -> Body:
        worker = worker_pod(job, index, job.status.attempt, self._progress_url, plan.secret_names, plan.spec_hash)
        return _placed(worker, Role.WORKER, job, plan)

    async def _create(self, job: HorovodJob, body: Body) -> None:
        """Creates an object, or adopts one that exists and belongs to the job."""
        if answer := await self._request(job, body):
            self._pods.update({**body, "metadata": {**body["metadata"], **answer["metadata"]}})

    async def _request(self, job: HorovodJob, body: Body, *, dry_run: bool = False) -> Body | None:
        """The new object as the writer returns it; None if it exists, and belongs to the job."""
        try:
            return await self._writer.create(body, dry_run=dry_run)
        except AlreadyExists as error:
            # The name of a Secret belongs to the job or to the release, and the operator has no right to read it.
            if body["kind"] != "Secret":
                self._pods.update(await self._existing(job, body, error))
            return None
        except NotServed as error:
            self._pod_groups.forget_version()
            raise RefusedObject(Refused(not_served_message(job.spec.scheduling.gang))) from error
        except Refused as error:
            raise RefusedObject(error, remedy=_remedy(body, error)) from error

    async def _existing(self, job: HorovodJob, body: Body, error: AlreadyExists) -> Mapping[str, Any]:
        """The existing object with the name of an object of the job. Raises RefusedObject, NameInUse."""
        description = _description(body)
        try:
            found = await self._reader.object(body)
        except Gone as gone:
            raise NameInUse(f"{description} was deleted meanwhile") from gone
        metadata = found["metadata"]
        owner = owner_uid(metadata)
        if owner not in ("", job.metadata.uid):
            raise NameInUse(f"{description} of an earlier job with the same name still exists") from error
        if not owner:
            message = f"{description} exists and does not belong to this job: delete or rename it, or rename the job"
            raise RefusedObject(Refused(message), Reason.NAME_CONFLICT) from error
        if body["kind"] == "Pod":
            await self._delete_unlabelled(job, found)
            return found
        if "deletionTimestamp" not in metadata:
            hashes = {(of.get("labels") or {}).get(LABEL_SPEC_HASH) for of in (metadata, body["metadata"])}
            if None in hashes or len(hashes) == 1:
                return found
            await self._writer.delete_collection(job, body["apiVersion"], body["kind"])
            log_effect(job, f"deleted {description}, which was created for another spec")
        raise NameInUse(f"{description} is being deleted") from error

    async def _delete_unlabelled(self, job: HorovodJob, found: Mapping[str, Any]) -> None:
        """Deletes a pod of the job that has lost its labels, so that no watch reports it, and then raises NameInUse."""
        owned = owned_pod(found)
        if owned and owned.key == job.key:
            return
        name, metadata = found["metadata"]["name"], found["metadata"]
        if "deletionTimestamp" not in metadata:
            with contextlib.suppress(Gone, Conflict):
                await self._writer.delete_pod(metadata["namespace"], name, metadata["uid"])
                log_effect(job, f"deleted pod {name}, which has lost the labels of the job")
        raise NameInUse(f"pod {name}, which has lost the labels of the job, is being deleted")

    async def _delete_disabled(self, job: HorovodJob, body: Body) -> None:
        """Deletes an object that an earlier spec of the job enabled, before a suspension."""
        if job.metadata.generation == 1 or job.status.attempt == 1:
            return
        try:
            found = await self._reader.object(body)
            if owner_uid(found["metadata"]) == job.metadata.uid:
                await self._writer.delete(body, found["metadata"]["uid"])
                log_effect(job, f"deleted {_description(body)}, which the spec no longer enables")
        except Refused as error:  # The operator has the rights of an older release.
            log_warning(job, f"{_description(body)} cannot be deleted: {error}")
        except (Gone, Conflict):
            pass


def _placed(pod: Body, role: Role, job: HorovodJob, plan: Plan) -> Body:
    """The pod with what decides about its node: earlier failures, and the queue that has admitted the job."""
    pod = avoid_nodes(pod, failed_nodes(job, job.status.errors))
    return plan.admission.apply(pod, role) if plan.admission else pod


def _optional_objects(job: HorovodJob, *, enabled: bool = True) -> list[Body]:
    """The objects with the name of the job that the spec enables, or those that it does not enable."""
    builders = ((job.spec.network.isolate, network_policy), (job.spec.network.service, service))
    return [build(job) for is_enabled, build in builders if is_enabled is enabled]


def _remedy(body: Body, error: Refused) -> str:
    """Which field of the job sets what a quota requires of a pod; the API server names only the container."""
    if body["kind"] != "Pod" or "must specify" not in str(error):
        return ""
    return f"; set requests and limits in spec.{body['metadata']['labels'][LABEL_ROLE]}.resources"


def _description(body: Mapping[str, Any]) -> str:
    kind = "pod" if body["kind"] == "Pod" else body["kind"]
    return f"{kind} {body['metadata']['name']}"


async def gather(requests: Iterable[Awaitable[T]]) -> list[T]:
    """The results of all, or the error of one of them, preferably a refusal."""
    results = await asyncio.gather(*requests, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for error in sorted(errors, key=lambda error: not isinstance(error, RefusedObject)):
        raise error
    return [result for result in results if not isinstance(result, BaseException)]


def generate_ssh_keys() -> dict[str, str]:
    """A new user key and a new host key, by the names of their files."""
    user, user_public = _generate_key_pair()
    host, host_public = _generate_key_pair()
    return {
        PRIVATE_KEY: user,
        AUTHORIZED_KEYS: f"{user_public} {HOST_KEY_ALIAS}\n",
        HOST_KEY: host,
        KNOWN_HOSTS: f"{HOST_KEY_ALIAS} {host_public}\n",
    }


def _generate_key_pair() -> tuple[str, str]:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
