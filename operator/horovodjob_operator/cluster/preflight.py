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
from horovodjob.api.job import HorovodJob
from horovodjob.api.vocabulary import Reason
from horovodjob_operator.domain.azure_files import script_on_share
from horovodjob_operator.errors import OperatorError

if TYPE_CHECKING:
    from horovodjob.azurefiles.share import Share

CONCURRENT_CHECKS = 8
CHECK_SECONDS = 20
LISTED_ENTRIES = 20
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
            import horovodjob.azurefiles.share  # noqa: F401
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
                log.warning("%s/%s Azure Files did not answer within %d s", *job.key, CHECK_SECONDS)
                return None
            if found:
                return found
        return None

    def close(self) -> None:
        """End the threads; checks under way are left alone."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _checks(job: HorovodJob) -> list[Callable[[], Problem | None]]:
    shares = {(share.account, share.share): share for share in job.spec.azure_files or () if share.protocol == "smb"}
    checks: list[Callable[[], Problem | None]] = [partial(_share_problem, job, share) for share in shares.values()]
    placed = script_on_share(job)
    if placed and placed[0].protocol == "smb":
        checks.append(partial(_script_problem, job, *placed))
    return checks


def _share_problem(job: HorovodJob, share: AzureFileShare) -> Problem | None:
    from horovodjob.azurefiles.errors import FilesError, NotFound

    try:
        _open(share).check()
    except NotFound as error:
        return Reason.STORAGE_UNAVAILABLE, str(error)
    except FilesError as error:
        log.warning("%s/%s share %s was not checked: %s", *job.key, share.share, error)
    return None


def _script_problem(job: HorovodJob, share: AzureFileShare, path: str) -> Problem | None:
    from horovodjob.azurefiles.errors import FilesError, NotFound

    opened = _open(share)
    try:
        opened.state(path)
    except NotFound:
        return Reason.SCRIPT_NOT_FOUND, _missing(opened, share, path)
    except FilesError as error:
        log.warning("%s/%s %s was not looked for: %s", *job.key, path, error)
    return None


def _missing(opened: Share, share: AzureFileShare, path: str) -> str:
    """A sentence that lists the nearest directory that exists."""
    from horovodjob.azurefiles.errors import FilesError, NotFound

    directory, missing = path.rpartition("/")[0], ""
    while True:
        try:
            entries = [f"{entry.name}/" if entry.is_directory else entry.name for entry in opened.entries(directory)]
            break
        except NotFound:
            missing, directory = f"{directory} does not exist, and ", directory.rpartition("/")[0]
        except FilesError:
            return f"there is no file {path} on share {share.share} of account {share.account}"
    shown = [*entries[:LISTED_ENTRIES], *([f"... ({len(entries)} entries)"] if len(entries) > LISTED_ENTRIES else [])]
    where = directory or "the root of the share"
    return (
        f"there is no file {path} on share {share.share} of account {share.account}: {missing}{where} contains "
        f"{' '.join(shown) or 'nothing'}"
    )


def _open(share: AzureFileShare) -> Share:
    from horovodjob.azurefiles.credentials import Options, choose_account
    from horovodjob.azurefiles.share import Share

    endpoint = f"https://{share.server}" if share.server else ""
    return Share(choose_account(share.account, Options(), os.environ, default_endpoint=endpoint), share.share)
