"""Files of a PersistentVolumeClaim, which a short-lived pod reads and writes."""

import os
import re
import secrets
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from horovodjob.azurefiles.errors import FileChanged
from horovodjob.azurefiles.files import Progress, joined
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster.claims import check_claims
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.files import volume_pods
from horovodjob.client.files.file_transfers import download_to, transfer_record
from horovodjob.client.files.pod_files import pod_files
from horovodjob.client.files.tar_stream import CHUNK, Member, archive, batches
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import Display

Object = dict[str, Any]
CLAIMS = "/claims"  # where the pod mounts them
IS_DIRECTORY = '[ -d "$1" ]'
# Arguments: the root, random digits, and the directory below the root for the files, which appear when all are there.
RECEIVE = """
umask 002
find "$1" -maxdepth 1 -name '.hvj-*' -mmin +1440 -exec rm -rf {} +
new=$1/.hvj-$2
trap 'rm -rf "$new"' EXIT
trap 'exit 1' HUP INT TERM
target=$1/$3
mkdir -p "$target" && mkdir "$new" && tar -xof - -C "$new" && cd "$new" || exit
find . -type d -exec sh -c 'for each do mkdir -p "$0/$each" || exit; done' "$target" {} + || exit
find . -type f -exec sh -c '
    for each do
        [ ! -d "$0/$each" ] || { echo "$0/$each is a directory"; exit 1; }
        mv -f "$each" "$0/$each" || exit
    done' "$target" {} +
"""


def upload(claim: str, path: str, source: Path, namespace: str, image: str, limit: WaitLimit, display: Display) -> Any:
    """Send a file or a directory to the claim, each file whole or not at all. Raises ClientError, FilesError, OSError.

    The files of a directory are put into that of the path. A path that is empty or ends with a slash, and for a file
    one that is a directory, is where the source gets its own name.
    """
    files = _files(source)
    check_claims([claim], namespace)
    wanted = _writer_pod(claim, namespace, image)
    root = f"{CLAIMS}/{claim}"
    display.message(f"writing to claim {claim} through pod {wanted['metadata']['name']}, which is deleted afterwards")
    try:
        pod = volume_pods.started(wanted, f"writes to claim {claim}", limit)
        target = path.strip("/")
        if not target or path.endswith("/") or (source.is_file() and _is_directory(pod, f"{root}/{target}")):
            target = joined(target, source.resolve().name)
        directory, name = (target, "") if source.is_dir() else (target.rpartition("/")[0], target.rpartition("/")[2])
        with display.transfer() as transfer:
            transfer.plan(len(files), sum(each.stat().st_size for _, each in files))
            for batch in batches([(name or below, each) for below, each in files]):
                command = ["sh", "-c", RECEIVE, "sh", root, secrets.token_hex(8), directory]
                code, error = pod_exec.send(pod, command, archive(batch, partial(_parts, transfer.progress)))
                if code:
                    raise _refused(claim, error)
    finally:
        volume_pods.delete(wanted)
    return transfer_record(f"{claim}:{target}", None if source.is_dir() else source.stat().st_size)


def download(
    claim: str, path: str, target: Path, namespace: str, image: str, limit: WaitLimit, display: Display
) -> Any:
    """Copy a file or a directory of the claim to this machine. Raises ClientError, FilesError, OSError."""
    check_claims([claim], namespace)
    with pod_files(_mounting(claim, namespace, image), limit, f"claim {claim}") as store:
        return download_to(target, store, joined(f"{CLAIMS}/{claim}", path.strip("/")), name=claim, display=display)


def _mounting(claim: str, namespace: str, image: str) -> Object:
    """What a pod that mounts the claim is made of, in the form of a job."""
    template = {"spec": {"securityContext": dict(volume_pods.SECURITY_CONTEXT)}}
    return {
        "metadata": {"name": re.sub(r"[^a-z0-9]+", "-", claim), "namespace": namespace},
        "spec": {
            "image": image,
            "worker": {"template": template},
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}],
            "volumeMounts": [{"name": "claim", "mountPath": f"{CLAIMS}/{claim}"}],
        },
    }


def _writer_pod(claim: str, namespace: str, image: str) -> Object:
    job = _mounting(claim, namespace, image)
    return volume_pods.volume_pod(job, job["spec"]["volumes"], job["spec"]["volumeMounts"])


def _is_directory(pod: Object, path: str) -> bool:
    return pod_exec.output(pod, ["sh", "-c", IS_DIRECTORY, "sh", path])[0] == 0


def _files(source: Path) -> list[Member]:
    """The files below the source with their paths from it, or the source itself. Raises UsageError."""
    if source.is_file():
        return [(source.name, source)]
    if not source.is_dir():
        raise UsageError(f"{source} does not exist on this machine; a claim is CLAIM:PATH, such as training-data:pets")
    found = [(each.relative_to(source).as_posix(), each) for each in sorted(source.rglob("*")) if each.is_file()]
    if not found:
        raise UsageError(f"the directory {source} has no files")
    return found


def _parts(progress: Progress, path: str, source: Path) -> Iterator[bytes]:
    """Raises FileChanged for a file that becomes shorter while it is read."""
    with source.open("rb") as file:
        facts = os.fstat(file.fileno())
        header = tarfile.TarInfo(path)
        header.size, header.mtime = facts.st_size, int(facts.st_mtime)
        header.mode = 0o775 if facts.st_mode & 0o100 else 0o664
        yield header.tobuf(tarfile.GNU_FORMAT)
        progress(path, 0, header.size)
        for start in range(0, header.size, CHUNK):
            length = min(CHUNK, header.size - start)
            part = file.read(length)
            if len(part) < length:
                raise FileChanged(f"{source} became shorter while it was sent; run the command again")
            yield part
            progress(path, start + length, header.size)


def _refused(claim: str, output: bytes) -> ClientError:
    reason = output.decode(errors="replace").strip().rpartition("\n")[2] or "it gave no reason"
    return ClientError(f"claim {claim} did not take the files: {reason.replace(f'{CLAIMS}/{claim}', '')}")
