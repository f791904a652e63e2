"""Downloads, and the records of files in Batch AI's format."""

from pathlib import Path
from typing import Any

from horovodjob.azurefiles.files import Entry, FileStore
from horovodjob.client.errors import UsageError
from horovodjob.client.messages import Display

Object = dict[str, Any]


def download_to(destination: Path, store: FileStore, source: str, *, name: str, display: Display) -> Any:
    """Download a file or a whole directory; `name` is the local name for the root."""
    from horovodjob.azurefiles.download import download_directory, download_file, local_name

    target = destination / local_name(source.rpartition("/")[2] or name) if destination.is_dir() else destination
    if not target.parent.is_dir():
        raise UsageError(f"`destination={destination}`: the directory {target.parent} does not exist")
    is_directory = not source or store.is_directory(source)
    if target.exists() and target.is_dir() is not is_directory:
        raise UsageError(f"`destination={target}` exists and is not a {'directory' if is_directory else 'file'}")
    with display.transfer() as transfer:
        if is_directory:
            download_directory(store, source, target, transfer.progress, transfer.plan)
        else:
            download_file(store, source, target, transfer.progress)
    return transfer_record(str(target), None if is_directory else target.stat().st_size)


def transfer_record(name: str, size: int | None) -> Object:
    """A transferred file, or a directory, which has no size."""
    return {"name": name, "fileType": "directory" if size is None else "file", "contentLength": size}


def file_record(entry: Entry, download_url: str | None = None) -> Object:
    """A file or directory in Batch AI's format."""
    modified = entry.modified.isoformat(timespec="seconds") if entry.modified else None
    record = transfer_record(entry.name, None if entry.is_directory else entry.size)
    return record | {"lastModified": modified, "downloadUrl": download_url}
