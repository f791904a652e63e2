"""An optional check before pods are created: do the share and the script exist on Azure Files?

It signs in by workload identity, so it needs no right to read Secrets. The administrator names the accounts of each
namespace, because the author of a job may have no access to what the operator can read. A check that fails has no
effect, because the kubelet can have access that the operator has not: a job never waits because Azure does not answer
the operator.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import Reason
from horovodjob.api.job import HorovodJob
from horovodjob.api.storage_account import files_host
from horovodjob_operator.domain.names import log_fields
from horovodjob_operator.domain.resources.parts.azure_files import script_on_share
from horovodjob_operator.errors import OperatorError

if TYPE_CHECKING:
    from horovodjob.azurefiles.credentials import Account

MAX_CONCURRENT_CHECKS = 8
CHECK_SECONDS = 20
IDENTITY = "AZURE_FEDERATED_TOKEN_FILE"
Problem = tuple[Reason, str]
# The hosts of the storage accounts that the jobs of a namespace may have checked.
Hosts = Mapping[str, frozenset[str]]
log = logging.getLogger("horovodjob.preflight")


class Preflight:
    """Checks the shares of jobs, in its own threads."""

    def __init__(self, hosts: Hosts) -> None:
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
                "HOROVODJOB_OPERATOR_PREFLIGHT needs azure-storage-file-share and azure-identity: "
                "pip install 'horovodjob[operator]'"
            ) from error
        self._hosts = hosts
        self._threads = ThreadPoolExecutor(MAX_CONCURRENT_CHECKS, thread_name_prefix="preflight")

    async def problem(self, job: HorovodJob) -> Problem | None:
        """Why the job cannot start, as far as the shares show it."""
        from horovodjob.azurefiles.errors import FilesError

        loop, fields = asyncio.get_running_loop(), log_fields(job)
        for reason, subject, check in _checks(job, self._hosts.get(job.metadata.namespace, frozenset())):
            try:
                message = await asyncio.wait_for(loop.run_in_executor(self._threads, check), CHECK_SECONDS)
            except TimeoutError:
                log.warning("%s/%s Azure Files did not answer within %d s", *job.key, CHECK_SECONDS, extra=fields)
                return None
            except FilesError as error:  # The account cannot be read.
                log.warning("%s/%s %s was not checked: %s", *job.key, subject, error, extra=fields)
                continue
            if message:
                return reason, message
        return None

    def close(self) -> None:
        """Ends the threads when their checks end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _checks(job: HorovodJob, hosts: frozenset[str]) -> Iterator[tuple[Reason, str, Callable[[], str]]]:
    """Reason and subject of each check, and a function that returns the problem, or an empty string."""
    from horovodjob.azurefiles.preflight import missing_script, missing_share

    for share in job.spec.azure_files or ():
        if _is_checked(share, hosts):
            # The kubelet creates the directory on a writable share.
            directory = share.directory or "" if share.read_only else ""
            check = partial(_check, missing_share, share, directory)
            yield Reason.STORAGE_UNAVAILABLE, f"share {share.share}", check
    script = script_on_share(job)
    if script and _is_checked(script[0], hosts):
        yield Reason.SCRIPT_NOT_FOUND, script[1], partial(_check, missing_script, *script)


def _is_checked(share: AzureFileShare, hosts: frozenset[str]) -> bool:
    """Whether the administrator allows the account and the host of the share for the namespace."""
    host = _host(share)
    return share.protocol == "smb" and host in hosts and host.partition(".")[0] == share.account


def _check(check: Callable[[Account, str, str], str], share: AzureFileShare, path: str) -> str:
    return check(_account(share), share.share, path)


def _account(share: AzureFileShare) -> Account:
    from horovodjob.azurefiles.credentials import Options, choose_account

    host = _host(share)
    return choose_account(share.account, Options(account=share.account, hosts=(host,)), os.environ, server=host)


def _host(share: AzureFileShare) -> str:
    return (share.server or files_host(share.account)).lower()
