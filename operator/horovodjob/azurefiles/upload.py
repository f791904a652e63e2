"""Upload of files and directories: complete under the final name, or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from horovodjob.azurefiles.error_translation import translate_errors
from horovodjob.azurefiles.errors import FileChanged, FileNotFound, FilesError
from horovodjob.azurefiles.files import Progress, joined, no_progress
from horovodjob.azurefiles.share import Share

WRITERS = 4


def upload_file(share: Share, source: Path, path: str, progress: Progress = no_progress) -> None:
    """Upload a file to `path`, in a directory that exists. Raises FilesError, OSError."""
    directory, _, name = path.rpartition("/")
    temporary = joined(directory, f".{name[:200]}.hvj-{secrets.token_hex(8)}")
    progress(path, 0, source.stat().st_size)
    try:
        _write(share, source, temporary, path, progress)
        _rename(share, temporary, path)
    except BaseException:
        with suppress(FilesError):
            share.delete_file(temporary)
        raise


def upload_directory(share: Share, source: Path, path: str, progress: Progress = no_progress) -> None:
    """Upload a whole directory to `path`, which is created. Raises FilesError, OSError."""
    if path:
        share.create_directory(path)
    for entry in sorted(source.iterdir()):
        upload = upload_directory if entry.is_dir() else upload_file
        upload(share, entry, joined(path, entry.name), progress)


def _write(share: Share, source: Path, temporary: str, path: str, progress: Progress) -> None:
    with source.open("rb") as file, translate_errors(share.account, share.name, path):
        size = os.fstat(file.fileno()).st_size
        share.file(temporary).upload_file(
            file, length=size, max_concurrency=WRITERS, progress_hook=lambda done, _: progress(path, done, size)
        )
        if os.fstat(file.fileno()).st_size != size:
            raise FileChanged(f"{source} changed while it was uploaded; upload it again when its writer has finished")


def _rename(share: Share, temporary: str, path: str) -> None:
    identity = share.state(temporary).identity
    try:
        with translate_errors(share.account, share.name, path):
            share.file(temporary).rename_file(path, overwrite=True)
    except FileNotFound:
        # The SDK repeats a rename that succeeded if only the response was lost.
        if share.state(path).identity != identity:
            raise
