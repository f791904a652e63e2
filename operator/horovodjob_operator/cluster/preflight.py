"""An optional look at Azure Files before pods are created: do share and script exist?

It signs in by workload identity, so it works without a right to read Secrets. Whatever it cannot find out is left to
the kubelet: a job never waits because Azure did not answer this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import Reason
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.names import log_fields
from horovodjob_operator.domain.resources.azure_files import script_on_share
from horovodjob_operator.errors import OperatorError

if TYPE_CHECKING:
    from horovodjob.azurefiles.credentials import Account

CONCURRENT_CHECKS = 8
CHECK_SECONDS = 20
IDENTITY = "AZURE_FEDERATED_TOKEN_FILE"
Problem = tuple[Reason, str]
log = logging.getLogger("horovodjob.preflight")


class Preflight:
    """Checks of the shares of jobs, in threads of their own."""

    def __init__(self) -> None:
        """Raises OperatorError where this process has no workload identity or not the libraries."""
        if not os.environ.get(IDENTITY):
            raise OperatorError(
                "HOROVODJOB_OPERATOR_PREFLIGHT needs workload identity: label the operator's pod "
                "'azure.workload.identity/use: \"true\"' and annotate its service account with a client id"
            )
        # Of the credentials that azure-identity would try, the others belong to developers' machines.
        os.environ.setdefault("AZURE_TOKEN_CREDENTIALS", "WorkloadIdentityCredential")
        try:
            import horovodjob.azurefiles.preflight  # noqa: F401
        except ImportError as error:
            raise OperatorError(
                "HOROVODJOB_OPERATOR_PREFLIGHT needs the extra azure: pip install 'horovodjob[operator,azure]'"
            ) from error
        self._threads = ThreadPoolExecutor(CONCURRENT_CHECKS, thread_name_prefix="preflight")

    async def problem(self, job: HorovodJob) -> Problem | None:
        """What would keep the job from starting, as far as the shares show it."""
        loop = asyncio.get_running_loop()
        for check in _checks(job):
            try:
                found = await asyncio.wait_for(loop.run_in_executor(self._threads, check), CHECK_SECONDS)
            except TimeoutError:
                words = ("%s/%s Azure Files did not answer within %d s", *job.key, CHECK_SECONDS)
                log.warning(*words, extra=log_fields(job))
                return None
            if found:
                return found
        return None

    def close(self) -> None:
        """End the threads; checks under way are left alone."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _checks(job: HorovodJob) -> list[Callable[[], Problem | None]]:
    shares = [share for share in job.spec.azure_files or () if share.protocol == "smb"]
    checks: list[Callable[[], Problem | None]] = [partial(_share_problem, job, share) for share in shares]
    placed = script_on_share(job)
    if placed and placed[0].protocol == "smb":
        checks.append(partial(_script_problem, job, *placed))
    return checks


def _share_problem(job: HorovodJob, share: AzureFileShare) -> Problem | None:
    from horovodjob.azurefiles.preflight import missing_share

    # The kubelet creates the directory of a share that can be written.
    directory = share.directory or "" if share.read_only else ""
    message = _looked_at(job, f"share {share.share}", lambda: missing_share(_account(share), share.share, directory))
    return (Reason.STORAGE_UNAVAILABLE, message) if message else None


def _script_problem(job: HorovodJob, share: AzureFileShare, path: str) -> Problem | None:
    from horovodjob.azurefiles.preflight import missing_script

    message = _looked_at(job, path, lambda: missing_script(_account(share), share.share, path))
    return (Reason.SCRIPT_NOT_FOUND, message) if message else None


def _looked_at(job: HorovodJob, what: str, look: Callable[[], str]) -> str:
    """What `look` finds; nothing where the account cannot be asked."""
    from horovodjob.azurefiles.errors import FilesError

    try:
        return look()
    except FilesError as error:
        log.warning("%s/%s %s was not checked: %s", *job.key, what, error, extra=log_fields(job))
        return ""


def _account(share: AzureFileShare) -> Account:
    from horovodjob.azurefiles.credentials import Options, choose_account

    endpoint = f"https://{share.server}" if share.server else ""
    return choose_account(share.account, Options(), os.environ, default_endpoint=endpoint)
