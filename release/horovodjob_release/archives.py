"""Archives that do not depend on time, user or order: same files, same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1024 * 1024


def write_tar(target: BinaryIO, files: Mapping[str, Path | bytes], modes: Mapping[str, int] | None = None) -> None:
    """Write a tar archive of files, given by content or by path, in the order of their names."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.mode = (modes or {}).get(name, 0o644)
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                entry.size = content.stat().st_size
                with content.open("rb") as file:
                    archive.addfile(entry, file)


def write_tar_gz(target: Path, files: Mapping[str, Path | bytes], modes: Mapping[str, int] | None = None) -> None:
    """Write a compressed tar archive."""
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
        write_tar(compressed, files, modes)  # type: ignore[arg-type]


def repack(archive: Path) -> None:
    """Write a .tgz again without the times that its maker gave to the files."""
    with tarfile.open(archive) as files:
        contents = {
            member.name: content.read() for member in files if (content := files.extractfile(member)) is not None
        }
    write_tar_gz(archive, contents)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(folder: Path) -> str:
    """What `sha256sum --check` reads, for all files of a folder but the list itself."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    return "".join(f"{sha256(path)}  {path.name}\n" for path in files)
