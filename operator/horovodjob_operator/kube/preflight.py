"""An optional check before pods are created: do the share and the script exist on Azure Files?

It signs in by workload identity, so it needs no right to read Secrets. A check that fails has no effect, because the
kubelet can have access that the operator has not: a job never waits because Azure does not answer the operator.
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
from horovodjob_operator.domain.resources.parts.azure_files import script_on_share
from horovodjob_operator.errors import OperatorError

if TYPE_CHECKING:
    from horovodjob.azurefiles.credentials import Account

MAX_CONCURRENT_CHECKS = 8
CHECK_SECONDS = 20
IDENTITY = "AZURE_FEDERATED_TOKEN_FILE"
Problem = tuple[Reason, str]
log = logging.getLogger("horovodjob.preflight")


class Preflight:
    """Checks the shares of jobs, in its own threads."""

    def __init__(self) -> None:
        """Raises OperatorError if this process has no workload identity, or the libraries are not installed."""
        if not os.environ.get(IDENTITY):
            raise OperatorError(
                "HOROVODJOB_OPERATOR_PREFLIGHT needs workload identity: label the operator's pod "
                "'azure.workload.identity/use: \"true\"' and annotate its service account with a client id"
            )
        # The other credentials that azure-identity would try are those of machines of developers.
        os.environ.setdefault("AZURE_TOKEN_CREDENTIALS", "WorkloadIdentityCredential")
        try:
            import horovodjob.azurefiles.preflight  # noqa: F401
        except ImportError as error:
            raise OperatorError(
                "HOROVODJOB_OPERATOR_PREFLIGHT needs the extra azure: pip install 'horovodjob[operator,azure]'"
            ) from error
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_CHECKS, thread_name_prefix="preflight")

    async def problem(self, job: HorovodJob) -> Problem | None:
        """Why the job cannot start, as far as the shares show it."""
        loop = asyncio.get_running_loop()
        for check in _checks(job):
            try:
                found = await asyncio.wait_for(loop.run_in_executor(self._threads, check), CHECK_SECONDS)
            except TimeoutError:
                log.warning(
                    "%s/%s Azure Files did not answer within %d s", *job.key, CHECK_SECONDS, extra=log_fields(job)
                )
                return None
            if found:
                return found
        return None

    def close(self) -> None:
        """Ends the threads when their checks end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _checks(job: HorovodJob) -> list[Callable[[], Problem | None]]:
    shares = [share for share in job.spec.azure_files or () if share.protocol == "smb"]
    checks: list[Callable[[], Problem | None]] = [partial(_share_problem, job, share) for share in shares]
    script = script_on_share(job)
    if script and script[0].protocol == "smb":
        checks.append(partial(_script_problem, job, *script))
    return checks


def _share_problem(job: HorovodJob, share: AzureFileShare) -> Problem | None:
    from horovodjob.azurefiles.preflight import missing_share

    # The kubelet creates the directory on a writable share.
    directory = share.directory or "" if share.read_only else ""
    message = _check_result(job, f"share {share.share}", lambda: missing_share(_account(share), share.share, directory))
    return (Reason.STORAGE_UNAVAILABLE, message) if message else None


def _script_problem(job: HorovodJob, share: AzureFileShare, path: str) -> Problem | None:
    from horovodjob.azurefiles.preflight import missing_script

    message = _check_result(job, path, lambda: missing_script(_account(share), share.share, path))
    return (Reason.SCRIPT_NOT_FOUND, message) if message else None


def _check_result(job: HorovodJob, subject: str, check: Callable[[], str]) -> str:
    """The message of a check; empty if the account cannot be read."""
    from horovodjob.azurefiles.errors import FilesError

    try:
        return check()
    except FilesError as error:
        log.warning("%s/%s %s was not checked: %s", *job.key, subject, error, extra=log_fields(job))
        return ""


def _account(share: AzureFileShare) -> Account:
    from horovodjob.azurefiles.credentials import Options, choose_account

    endpoint = f"https://{share.server}" if share.server else ""
    return choose_account(share.account, Options(), os.environ, default_endpoint=endpoint)
