"""A directory on a PersistentVolumeClaim, which a short-lived pod receives as a stream of tar archives."""

import hashlib
import os
import secrets
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from horovodjob.azurefiles.errors import FileChanged
from horovodjob.azurefiles.files import Progress, no_progress
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.files import volume_pods
from horovodjob.client.files.tar_stream import CHUNK, archive, batches
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import Display
from horovodjob.client.runs.file_tree import FILES, TREES, FileTree

Object = dict[str, Any]
VOLUME, DIRECTORY = "storage", "/job/storage"
# Prints the names of the files; first deletes what receptions that were killed have left.
LIST = """
exec 2>&1
umask 002
mkdir -p "$1/code/files" "$1/code/trees" || exit
find "$1/code" -maxdepth 1 -name '.hvj-*' -mmin +1440 -exec rm -rf {} +
ls "$1/code/files"
"""
RECEIVE = """
umask 002
new=$1/code/.hvj-$2
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$new" && tar -xof - -C "$new" || exit
for kind in files trees; do
    cd "$new/code/$kind" 2>/dev/null || continue
    for name in *; do echo "$name  $name"; done | sha256sum -c >/dev/null && mv -f -- * "$1/code/$kind/" || exit
done
"""


def check(claim: str, namespace: str) -> None:
    """Raises UsageError if only one pod can mount the claim."""
    found = kube.plain(kube.core().read_namespaced_persistent_volume_claim(claim, namespace))
    if found["spec"]["accessModes"] == ["ReadWriteOncePod"]:
        raise UsageError(
            f"claim {claim} is ReadWriteOncePod, and a job has several pods; use one that is ReadWriteMany"
        )


def send(claim: str, tree: FileTree, job: Object, limit: WaitLimit, display: Display) -> None:
    """Send the files that the claim does not have, and then the list. Raises ClientError, FilesError, OSError.

    After an interruption, the next run sends the batches that did not arrive.
    """
    volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim}}
    wanted = volume_pods.volume_pod(job, [volume], [{"name": VOLUME, "mountPath": DIRECTORY}])
    display.message(f"sending the directory to claim {claim} through pod {wanted['metadata']['name']}")
    try:
        pod = volume_pods.started(wanted, f"receives the directory on claim {claim}", limit)
        code, listed = pod_exec.output(pod, ["sh", "-c", LIST, "sh", DIRECTORY])
        if code:
            raise _refused(claim, listed)
        there = set(listed.decode().split())
        files = [
            (f"{FILES}/{digest}", source) for digest, source in sorted(tree.sources.items()) if digest not in there
        ]
        with display.transfer() as transfer, tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "tree"
            path.write_bytes(tree.listed.encode())
            transfer.plan(len(files), sum(source.stat().st_size for _, source in files))
            for batch in batches(files):
                _receive(pod, claim, archive(batch, partial(_parts, transfer.progress)))
            _receive(pod, claim, archive([(f"{TREES}/{tree.name}", path)], partial(_parts, no_progress)))
    finally:
        volume_pods.delete(wanted)


def _receive(pod: Object, claim: str, archive: Iterator[bytes]) -> None:
    code, error = pod_exec.send(pod, ["sh", "-c", RECEIVE, "sh", DIRECTORY, secrets.token_hex(8)], archive)
    if code:
        raise _refused(claim, error)


def _refused(claim: str, output: bytes) -> ClientError:
    reason = output.decode(errors="replace").strip().rpartition("\n")[2] or "it gave no reason"
    return ClientError(f"claim {claim} did not take the directory: {reason}")


def _parts(progress: Progress, path: str, source: Path) -> Iterator[bytes]:
    """Raises FileChanged for a file whose content is not that of its path, which ends with its SHA-256."""
    digest = hashlib.sha256()
    with source.open("rb") as file:
        header = tarfile.TarInfo(path)
        header.size = size = os.fstat(file.fileno()).st_size
        yield header.tobuf(tarfile.GNU_FORMAT)
        progress(path, 0, size)
        for start in range(0, size, CHUNK):
            length = min(CHUNK, size - start)
            part = file.read(length)
            digest.update(part)
            yield part.ljust(length, b"\0")
            progress(path, start + length, size)
    if digest.hexdigest() != path.rpartition("/")[2]:
        raise FileChanged(f"{source} changed while it was sent; run the command again when its writer has finished")
