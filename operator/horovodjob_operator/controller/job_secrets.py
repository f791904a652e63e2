"""Creates and deletes the Secret of a job, which the operator has no right to read."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.job_log import log_effect, log_warning
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.refusals import RefusedObject, name_conflict
from horovodjob_operator.domain import names
from horovodjob_operator.domain.observed import Observed
from horovodjob_operator.domain.resources.secret import job_secret
from horovodjob_operator.errors import AlreadyExists, Gone, Refused, Unavailable
from horovodjob_operator.kube.cache import PodCache
from horovodjob_operator.kube.ssh_keys import generate_ssh_keys
from horovodjob_operator.kube.writer import Writer
from horovodjob_operator.start_scripts import SCRIPTS

# Kubernetes deletes the objects of a deleted job within this time; an older Secret belongs to something else.
GARBAGE_COLLECTION_SECONDS = 10


def new_secret(job: HorovodJob) -> dict[str, Any]:
    """The Secret with new keys and the start scripts of this release."""
    return job_secret(job, generate_ssh_keys() | SCRIPTS)


class JobSecrets:
    """The Secrets of jobs."""

    def __init__(self, pods: PodCache, writer: Writer, clock: Callable[[], datetime]) -> None:
        self._pods, self._writer, self._clock = pods, writer, clock

    async def ensure(self, state: JobState, observed: Observed) -> bool:
        """Creates the Secret if it does not exist.

        Returns False if pods with other keys were deleted, so that no pods can be created yet. Raises RefusedObject.
        """
        job, secret = state.job, new_secret(state.job)
        try:
            await self._writer.create(secret)
        except AlreadyExists as error:
            self._check_owner(state, error)
            state.secret_created()
            return True
        except Refused as error:
            raise RefusedObject(secret["kind"], error) from error
        except Unavailable:
            state.secret_unconfirmed()
            raise
        state.secret_created()
        if all(pod.secret_name != secret["metadata"]["name"] for pod in observed.pods):
            return True
        await self._writer.delete_pods(job)
        self._pods.change(job.key, observed.pods, is_terminating=True)
        log_effect(job, "recreated the Secret and deleted the pods that use the old keys")
        return False

    def _check_owner(self, state: JobState, error: AlreadyExists) -> None:
        """Raises an error unless the existing Secret can be that of the job."""
        if state.owns_secret:
            return
        name = names.secret_name(state.job)
        if self._clock() - state.job.metadata.creation_timestamp < timedelta(seconds=GARBAGE_COLLECTION_SECONDS):
            raise Unavailable(f"Secret {name} exists, possibly of an earlier job with the same name") from error
        if state.has_unconfirmed_secret:
            return
        raise name_conflict("Secret", f"Secret {name}") from error

    async def delete(self, state: JobState, observed: Observed) -> None:
        """Deletes the Secrets of a finished job: those that its pods use, and the one that this process created."""
        if state.has_deleted_secrets:
            return
        job = state.job
        # A user who can create pods could name any Secret in a pod with the labels of the job.
        secrets = {pod.secret_name for pod in observed.pods if names.is_secret_name(job, pod.secret_name)}
        if "Secret" in state.owned_kinds:
            secrets.add(names.secret_name(job))
        for secret in sorted(secrets):
            try:
                await self._writer.delete_secret(job.metadata.namespace, secret)
            except Gone:
                pass
            except Refused as error:  # The operator has the rights of an older release.
                log_warning(job, f"Secret {secret} remains: {error}")
        state.secrets_deleted()
