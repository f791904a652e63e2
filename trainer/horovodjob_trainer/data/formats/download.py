"""Atomic downloads, once per node."""

import fcntl
import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from horovodjob_trainer.errors import DataError, error_reason

TIMEOUT_SECONDS = 60


def download_file(url: str, sha256: str, directory: Path) -> Path:
    """The file in `directory`. The first process of the node downloads it while the others wait.

    The name contains the checksum, so that a different file from the same URL has a different name.
    """
    name = Path(urlsplit(url).path).name
    stem, dot, ending = name.partition(".")
    target = directory / f"{stem}-{sha256[:16]}{dot}{ending}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / f".{target.name}.lock") as is_locked:
            if not target.exists():
                if is_locked:
                    _delete_partial_files(target)
                _download(url, sha256, target)
    except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
        raise DataError(
            f"cannot download {url} to {target}: {error_reason(error)}; copy the archive there or use --archive"
        ) from error
    return target


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            is_locked = True
        except OSError:  # a share without locks: each process downloads the file, and the last rename wins
            is_locked = False
        yield is_locked


def _delete_partial_files(target: Path) -> None:
    for part in target.parent.glob(f".{target.name}.*.part"):  # from processes that were killed
        part.unlink(missing_ok=True)


def _download(url: str, sha256: str, target: Path) -> None:
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name}.", suffix=".part", delete=False
    ) as file:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                while chunk := response.read(1 << 20):
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != sha256:
                raise DataError(
                    f"the download of {url} has SHA-256 {digest.hexdigest()} instead of {sha256}; "
                    "try again, or use --archive"
                )
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise
