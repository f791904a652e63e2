"""A directory in a ConfigMap: for a cluster without a share."""

import base64
import gzip
import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from horovodjob.client.errors import UsageError
from horovodjob.client.runs.directory import CodeFile, size_text, too_large
from horovodjob.command_line import shell_text

Object = dict[str, Any]
MOST_BYTES = 512 << 10  # a ConfigMap has at most 1 MiB, and base64 adds a third
MOST_PLAIN_BYTES = 64 << 20
KEY = "code.tar.gz"


def archive(directory: Path, files: Sequence[CodeFile]) -> bytes:
    """The files as a compressed tar archive, the same for the same contents. Raises UsageError if it is too large."""
    hint = "a ConfigMap can have; put it on a volume with `share=` or `claim=`"
    if (total := sum(file.size for file in files)) > MOST_PLAIN_BYTES:
        raise too_large(directory, files, f"has {size_text(total)}, which is more than {hint}")
    buffer = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, buffer, mtime=0) as compressed, _tar(compressed) as tar:
        for file in files:
            data = file.source.read_bytes()
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = len(data), 0o755 if file.is_executable else 0o644
            tar.addfile(member, io.BytesIO(data))
    packed = buffer.getvalue()
    if len(packed) > MOST_BYTES:
        limit = f"has {size_text(len(packed))} compressed, which is more than the {size_text(MOST_BYTES)} that {hint}"
        raise too_large(directory, files, limit)
    return packed


def _tar(compressed: gzip.GzipFile) -> tarfile.TarFile:
    """An archive with the bytes of names as they are, which every tar reads."""
    return tarfile.open(
        fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    )


def config_map(job_name: str, namespace: str, packed: bytes) -> Object:
    """The archive as a ConfigMap, whose name contains a hash of its contents."""
    digest = hashlib.sha256(packed).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{code_prefix(job_name)}{digest}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "hvj"},
        },
        "binaryData": {KEY: base64.b64encode(packed).decode()},
        "immutable": True,
    }


def unpack_command(packed: bytes, mounted: str, directory: str) -> str:
    """A shell command that unpacks the archive if it is this one: who may write ConfigMaps can replace it."""
    return shell_text(
        f'{{ [ "$(sha256sum <{mounted}/{KEY})" = "{hashlib.sha256(packed).hexdigest()}  -" ] ||\n'
        "    { echo 'the ConfigMap of the code has other contents than this run sent: run again' >&2; exit 1; }; } &&\n"
        f"tar -xzf {mounted}/{KEY} -C {directory}"
    )


def code_prefix(job_name: str) -> str:
    """How the name of the ConfigMap with the code of a job begins."""
    return f"{job_name}-code-"


def copied(source: Object, old_name: str, new_name: str) -> Object:
    """The code of a job for another one. Raises UsageError if it is not an archive of `hvj run`."""
    data = source.get("binaryData") or {}
    if KEY not in data:
        raise UsageError(f"ConfigMap {source['metadata']['name']} of job {old_name} has no {KEY}; use `workdir=`")
    return config_map(new_name, source["metadata"]["namespace"], base64.b64decode(data[KEY]))
