"""Files on a volume of a job, read through a pod that mounts it: a pod of the job, or a short-lived one.

The pod needs a shell with cat, head, stat and tail, which an image with ssh and MPI has.
"""

import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from horovodjob.api.azure_files import AzureFileShare
from horovodjob.api.constants import LABEL_ROLE, MOUNT_ROOT
from horovodjob.azurefiles.errors import DirectoryNotFound, FileNotFound, FilesError, Unavailable
from horovodjob.azurefiles.files import Entry, FileState, Part
from horovodjob_cli.cluster import exec as pod_exec
from horovodjob_cli.cluster import kube
from horovodjob_cli.errors import CliError

Object = dict[str, Any]
ROLE = "files"
START_SECONDS = 300
LIFETIME_SECONDS = 6 * 3600  # of a pod that outlives `hvj`, which was killed
MISSING = 44
STATE = """
[ -f "$1" ] || exit 44
[ -r "$1" ] || exit 45
stat -L -c '%s %i %y' -- "$1" || exit
"""
READ = f'{STATE} tail -c "+$2" -- "$1" | head -c "$3"'
# One record for each file: a line of attributes, the name, a NUL.
LIST = """
cd -- "$1" 2>/dev/null || exit 44
for name in * .*; do
    case $name in .|..) continue ;; esac
    stat -L -c '%s %Y %F' -- "$name" 2>/dev/null && printf '%s\\0' "$name"
done
exit 0
"""


class PodFiles:
    """Files below absolute paths of a job's containers."""

    def __init__(self, job: Object) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._pod: Object | None = None
        self._own: Object | None = None

    def entries(self, directory: str) -> list[Entry]:
        """The entries of the directory, sorted by name."""
        code, output = self._run(LIST, _absolute(directory))
        if code:
            raise DirectoryNotFound(f"{_absolute(directory)} does not exist on the job's volume")
        return sorted((_entry(record) for record in output.split(b"\0")[:-1]), key=lambda entry: entry.name)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory with this path."""
        return self._run('[ -d "$1" ]', _absolute(path))[0] == 0

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
        from kubernetes.client import ApiException

        if self._own is not None:
            metadata = self._own["metadata"]
            with suppress(ApiException):
                kube.core().delete_namespaced_pod(metadata["name"], metadata["namespace"], grace_period_seconds=0)

    def _file(self, script: str, path: str, *arguments: str) -> tuple[FileState, bytes]:
        code, output = self._run(script, _absolute(path), *arguments)
        if code == MISSING:
            raise FileNotFound(f"{_absolute(path)} does not exist on the job's volume")
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
                except (ApiException, CliError) as error:
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
            running = (pod for pod in kube.pods(self._job) if _is_running(pod))
            self._pod = next(running, None) or self._new_pod()
        return self._pod

    def _new_pod(self) -> Object:
        namespace = self._job["metadata"]["namespace"]
        wanted = reader_pod(self._job)
        name = wanted["metadata"]["name"]
        self._own = wanted  # before it exists: Ctrl-C can come between the request and its answer
        made: Object = kube.plain(kube.core().create_namespaced_pod(namespace, wanted))
        sys.stderr.write(f"reading the job's volume through pod {name}, which is deleted afterwards\n")
        deadline = time.monotonic() + START_SECONDS
        while not _is_running(made):
            if time.monotonic() > deadline or made.get("status", {}).get("phase") in ("Failed", "Succeeded"):
                raise Unavailable(
                    f"pod {name}, which reads the job's volume, did not start: {_reason(made)}; "
                    f"see `kubectl describe pod {name} -n {namespace}`"
                )
            time.sleep(0.5)
            made = kube.plain(kube.core().read_namespaced_pod(name, namespace))
        self._own = made
        return made


@contextmanager
def pod_files(job: Object) -> Iterator[PodFiles]:
    """The files of a job's volumes; deletes the pod that was created to read them."""
    files = PodFiles(job)
    try:
        yield files
    finally:
        files.close()


def reader_pod(job: Object) -> Object:
    """A pod that mounts the job's volumes, read-only, under Pod Security `restricted` if the job's pods are."""
    metadata, spec = job["metadata"], job["spec"]
    nfs = [share for share in map(AzureFileShare.model_validate, spec.get("azureFiles", [])) if share.protocol == "nfs"]
    volumes = [*spec.get("volumes", []), *(_nfs_volume(share) for share in nfs)]
    mounts = [mount | {"readOnly": True} for mount in spec.get("volumeMounts", [])]
    mounts += [_nfs_mount(share) for share in nfs]
    container: Object = {
        "name": ROLE,
        "image": spec["image"],
        "command": ["sleep", str(LIFETIME_SECONDS)],
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    if pull_policy := spec.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy
    if spec.get("podSecurity", "Restricted") == "Restricted":
        container["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    template = (spec.get("worker", {}).get("template") or {}).get("spec") or {}
    kept = {key: spec[key] for key in ("nodeSelector", "tolerations", "imagePullSecrets") if spec.get(key)}
    return {
        "metadata": {
            "name": f"{metadata['name'][:48]}-files-{secrets.token_hex(4)}",
            "namespace": metadata["namespace"],
            "labels": {LABEL_ROLE: ROLE, "app.kubernetes.io/managed-by": "hvj"},
            "ownerReferences": [
                {
                    "apiVersion": job["apiVersion"],
                    "kind": job["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": {
            **kept,
            "activeDeadlineSeconds": LIFETIME_SECONDS,
            "automountServiceAccountToken": False,
            "containers": [container],
            "restartPolicy": "Never",
            "securityContext": template.get("securityContext") or {},
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
        },
    }


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


def _is_running(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    role = pod["metadata"]["labels"][LABEL_ROLE]
    running = any(status["name"] == role and "running" in status.get("state", {}) for status in statuses)
    return running and not pod["metadata"].get("deletionTimestamp")


def _reason(pod: Object) -> str:
    status = pod.get("status", {})
    waiting = [each["state"]["waiting"] for each in status.get("containerStatuses", []) if each["state"].get("waiting")]
    conditions = [each for each in status.get("conditions", []) if each.get("status") == "False"]
    for found in (*waiting, *conditions):
        if words := found.get("message") or found.get("reason"):
            return str(words)
    return str(status.get("phase", "Pending"))


def _entry(record: bytes) -> Entry:
    facts, _, name = record.partition(b"\n")
    size, modified, kind = facts.decode().split(" ", 2)
    is_directory = kind == "directory"
    moment = datetime.fromtimestamp(int(modified), UTC)
    return Entry(name.decode(errors="replace"), is_directory, 0 if is_directory else int(size), moment)
