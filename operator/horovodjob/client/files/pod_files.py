"""Files on a volume of a job, read through a pod that mounts it: a pod of the job, or a short-lived one.

The pod needs a shell with cat, head, stat and tail, which an image with ssh and MPI has.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import MOUNT_ROOT
from horovodjob.azurefiles.errors import DirectoryNotFound, FileNotFound, FilesError, Unavailable
from horovodjob.azurefiles.files import Entry, FileState, Part
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError
from horovodjob.client.files import volume_pods
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message

Object = dict[str, Any]
MISSING = 44
STATE = """
[ -f "$1" ] || exit 44
[ -r "$1" ] || exit 45
stat -L -c '%s %i %y' -- "$1" || exit
"""
READ = f'{STATE} tail -c "+$2" -- "$1" | head -c "$3"'
# One record for each file and directory, and for links to them: a line of attributes, the name, a NUL.
LIST = """
cd -- "$1" 2>/dev/null || exit 44
for name in * .*; do
    case $name in .|..) continue ;; esac
    [ -f "$name" ] || [ -d "$name" ] || continue
    link=file
    [ ! -h "$name" ] || link=link
    stat -L -c "$link %s %Y %d:%i %F" -- "$name" 2>/dev/null && printf '%s\\0' "$name"
done
exit 0
"""
LINEAGE = """
cd -P -- "$1" 2>/dev/null || exit
while stat -c '%d:%i' . && [ "$(pwd)" != / ]; do cd .. || exit; done
"""


class PodFiles:
    """Files below absolute paths of a job's containers."""

    def __init__(self, job: Object, limit: WaitLimit, volume: str = "the job's volume") -> None:
        self._job, self._limit, self._volume = job, limit, volume
        self._lock = threading.Lock()
        self._pod: Object | None = None
        self._own: Object | None = None

    def entries(self, directory: str) -> list[Entry]:
        """The entries of the directory, sorted by name."""
        code, output = self._run(LIST, _absolute(directory))
        if code:
            raise DirectoryNotFound(f"{_absolute(directory)} does not exist on {self._volume}")
        return sorted((_entry(record) for record in output.split(b"\0")[:-1]), key=lambda entry: entry.name)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory with this path."""
        return self._run('[ -d "$1" ]', _absolute(path))[0] == 0

    def lineage(self, directory: str) -> list[str]:
        """Device and inode of the directory and of those that contain it."""
        return self._run(LINEAGE, _absolute(directory))[1].decode().split()

    def state(self, path: str) -> FileState:
        """Size, modification time and inode of the file."""
        return self._file(STATE, path)[0]

    def read(self, path: str, start: int, length: int) -> Part:
        """Bytes of the file, by `tail` and `head`, with the state immediately before."""
        state, data = self._file(READ, path, str(start + 1), str(length))
        return Part(data[: max(state.size - start, 0)], state)

    def download_url(self, path: str, expiry: datetime) -> None:
        """Volumes have no download links."""

    def close(self) -> None:
        """Delete the pod that was created for reading."""
        if self._own is not None:
            volume_pods.delete(self._own)

    def _file(self, script: str, path: str, *arguments: str) -> tuple[FileState, bytes]:
        code, output = self._run(script, _absolute(path), *arguments)
        if code == MISSING:
            raise FileNotFound(f"{_absolute(path)} does not exist on {self._volume}")
        if code:
            raise FilesError(f"{_absolute(path)} cannot be read in pod {self._name}; check its permissions")
        facts, _, data = output.partition(b"\n")
        size, identity, changed = facts.decode().split(" ", 2)
        return FileState(int(size), changed, identity), data

    def _run(self, script: str, *arguments: str) -> tuple[int, bytes]:
        """Run a shell script in a pod; if the pod was deleted, use another one."""
        from kubernetes.client import ApiException

        with self._lock:
            for attempt in range(3):
                pod = self._running_pod()
                try:
                    return pod_exec.output(pod, ["sh", "-c", script, "sh", *arguments])
                except (ApiException, ClientError) as error:
                    if isinstance(error, ApiException) and error.status in (401, 403):
                        raise
                    if attempt == 2 or pod is self._own:
                        raise Unavailable(f"pod {self._name} does not answer; try again") from error
                    self._pod = None
        raise AssertionError  # for the type checker: the last attempt returns or raises

    @property
    def _name(self) -> str:
        return str(self._pod["metadata"]["name"]) if self._pod else ""

    def _running_pod(self) -> Object:
        if self._pod is None:
            pods = kube.pods(self._job) if "uid" in self._job["metadata"] else []
            running = filter(volume_pods.is_running, pods)
            self._pod = next(running, None) or self._new_pod()
        return self._pod

    def _new_pod(self) -> Object:
        self._own = wanted = reader_pod(self._job)  # before it exists: Ctrl-C can come before the answer
        message(f"reading {self._volume} through pod {wanted['metadata']['name']}, which is deleted afterwards")
        self._own = volume_pods.started(wanted, f"reads {self._volume}", self._limit)
        return self._own


@contextmanager
def pod_files(job: Object, limit: WaitLimit, volume: str = "the job's volume") -> Iterator[PodFiles]:
    """The files of a job's volumes, which messages call `volume`; deletes the pod that was created to read them."""
    files = PodFiles(job, limit, volume)
    try:
        yield files
    finally:
        files.close()


def reader_pod(job: Object) -> Object:
    """A pod that mounts the job's volumes, read-only."""
    spec = job["spec"]
    nfs = [share for share in map(AzureFileShare.model_validate, spec.get("azureFiles", [])) if share.protocol == "nfs"]
    mounts = [mount | {"readOnly": True} for mount in spec.get("volumeMounts", [])]
    return volume_pods.volume_pod(
        job,
        [*spec.get("volumes", []), *(_nfs_volume(share) for share in nfs)],
        [*mounts, *(_nfs_mount(share) for share in nfs)],
    )


def _nfs_volume(share: AzureFileShare) -> Object:
    return {"name": f"share-{share.name}", "nfs": share.nfs_source}


def _nfs_mount(share: AzureFileShare) -> Object:
    subpath = {"subPath": share.directory.strip("/")} if share.directory else {}
    return {
        "name": f"share-{share.name}",
        "mountPath": f"{MOUNT_ROOT}/{share.mount_path}",
        "readOnly": True,
        **subpath,
    }


def _absolute(path: str) -> str:
    return f"/{path.strip('/')}"


def _entry(record: bytes) -> Entry:
    facts, _, name = record.partition(b"\n")
    link, size, modified, identity, kind = facts.decode().split(" ", 4)
    is_directory = kind == "directory"
    return Entry(
        name.decode(errors="replace"),
        is_directory,
        0 if is_directory else int(size),
        datetime.fromtimestamp(int(modified), UTC),
        identity=identity if is_directory else "",
        is_link=link == "link",
    )
