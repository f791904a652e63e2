"""Location of a job's files: the share or volume for a path in its containers."""

import base64
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import MOUNT_ROOT
from horovodjob.azurefiles.credentials import Options
from horovodjob.azurefiles.files import FileStore, joined
from horovodjob.azurefiles.location import share_path
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, NotFound
from horovodjob.client.files.share_access import open_share
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.wait_limit import WaitLimit, limited_versions

Object = dict[str, Any]
STDOUTERR = "stdouterr"
NO_LIMIT = WaitLimit()
REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True, slots=True)
class StoreDirectory:
    """A directory of a store."""

    store: FileStore
    path: str


def job_with_output(job: Object, limit: WaitLimit) -> Object:
    """The job, as soon as its status has the output directory. Raises Stalled, TimedOut."""
    versions = limited_versions(job, limit)
    return next(each for each in versions if _segment(each) or batchai_records.is_finished(each))


def directory_in_containers(job: Object, directory_id: str) -> str:
    """Path of one of the job's output directories in its containers. Raises ClientError, NotFound."""
    name, spec = batchai_records.display_name(job), job["spec"]
    segment = _segment(job)
    if not segment:
        raise ClientError(
            f"job {name} has no files yet: the operator has not reconciled it; see `hvj job show -n {name}`"
        )
    if directory_id == STDOUTERR:
        if not spec.get("logs"):
            raise NotFound(f"job {name} writes no log files because it has no spec.logs; see `hvj job logs -n {name}`")
        return _absolute(job, f"{spec['logs']['pathPrefix'].rstrip('/')}/{segment}/{STDOUTERR}")
    outputs = {output["id"]: output for output in spec.get("outputs", [])}
    if directory_id not in outputs:
        known = ", ".join([*([STDOUTERR] if spec.get("logs") else []), *outputs]) or "none"
        raise NotFound(f"job {name} has no output directory {directory_id}; it has: {known}")
    output = outputs[directory_id]
    return _absolute(job, f"{output['pathPrefix'].rstrip('/')}/{segment}/{output.get('pathSuffix', '')}")


@contextmanager
def open_directory(
    job: Object,
    directory_id: str,
    path: str,
    options: Options,
    limit: WaitLimit = NO_LIMIT,
    *,
    with_pods: bool = True,
) -> Iterator[StoreDirectory]:
    """The store with a path below an output directory. Raises ClientError, without pods for what only one can read.

    A volume is read through a pod, which is created if none of the job runs, and starts within the limit.
    """
    absolute = joined(directory_in_containers(job, directory_id), share_path(path))
    mounts = {f"{MOUNT_ROOT}/{share.mount_path}".strip("/"): share for share in _shares(job)}
    mounts |= {normpath(mount["mountPath"]).strip("/"): mount for mount in job["spec"].get("volumeMounts", [])}
    containing = [mount for mount in mounts if f"{absolute}/".startswith(f"{mount}/")]
    if not containing:
        raise ClientError(
            f"/{absolute} is on no volume of job {batchai_records.display_name(job)}, so it is lost with the pods; "
            "set its pathPrefix to a path below a mount of spec.azureFiles or spec.volumeMounts"
        )
    mount = max(containing, key=len)
    found = mounts[mount]
    if isinstance(found, AzureFileShare) and found.protocol == "smb":
        below = joined(found.directory or "", absolute.removeprefix(mount))
        yield StoreDirectory(_azure_share(job, found, options), below)
        return
    if not with_pods:
        where = f"-j {job['metadata']['name']} -w {job['metadata']['namespace']} -d {directory_id}"
        raise ClientError(
            f"/{absolute} is on a volume, which only a pod can read; `hvj job file list {where}` starts one"
        )
    from horovodjob.client.files.pod_files import pod_files

    with pod_files(job, limit) as store:
        yield StoreDirectory(store, f"/{absolute}")


class JobEnd:
    """The end of a job, watched in the background, or that of the wait for it."""

    def __init__(self, job: Object, limit: WaitLimit) -> None:
        self._limit = limit
        self._ended = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=copy_context().run, args=(self._watch, job), daemon=True).start()

    def has_ended(self) -> bool:
        """Whether the job has ended or was deleted. Raises Stalled, TimedOut, and the error of the watch."""
        if self._error is not None:
            raise self._error
        return self._ended.is_set()

    def wait(self, seconds: float) -> None:
        """Return after this time, or earlier if the job ends."""
        if self._ended.is_set():
            time.sleep(seconds)
        self._ended.wait(seconds)

    def _watch(self, job: Object) -> None:
        try:
            for version in limited_versions(job, self._limit):
                if batchai_records.is_finished(version):
                    break
        except NotFound:
            pass
        except Exception as error:
            self._error = error
        self._ended.set()


def _segment(job: Object) -> str:
    return str(job.get("status", {}).get("outputPathSegment") or "")


def _shares(job: Object) -> list[AzureFileShare]:
    return [AzureFileShare.model_validate(share) for share in job["spec"].get("azureFiles", [])]


def _absolute(job: Object, path: str) -> str:
    """The normalized path, with the values of the variables that the operator sets."""
    metadata = job["metadata"]
    values = {
        "AZ_BATCHAI_JOB_MOUNT_ROOT": MOUNT_ROOT,
        "HOROVODJOB_NAME": metadata["name"],
        "HOROVODJOB_NAMESPACE": metadata["namespace"],
    }

    def value(reference: re.Match[str]) -> str:
        return "$" if reference[0] == "$$" else values.get(reference[1], reference[0])

    return normpath(REFERENCE.sub(value, path))


def _azure_share(job: Object, share: AzureFileShare, options: Options) -> FileStore:
    return open_share(
        share.share,
        options,
        account=share.account,
        server=share.server or "",
        secret_name=share.key_secret,
        read_secret=lambda: secret_values(job["metadata"]["namespace"], share.key_secret),
    )


def secret_values(namespace: str, name: str) -> Mapping[str, str]:
    """The values of a Secret; empty if it does not exist or the user may not read it."""
    from kubernetes.client import ApiException

    try:
        data = kube.plain(kube.core().read_namespaced_secret(name, namespace)).get("data", {})
    except ApiException as error:
        if error.status not in (403, 404):
            raise
        return {}
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}
