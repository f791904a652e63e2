"""What a job needs of a share before its pods are made."""

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.errors import DirectoryNotFound, FileNotFound, NotFound
from horovodjob.azurefiles.share import Share

MOST_NAMES = 20


def missing(account: Account, share: str, *, directory: str = "", script: str = "") -> str:
    """A sentence about the first of share, directory and script that does not exist; empty if all do.

    Blocks for the time of three requests at most, so a caller with an event loop runs it in a thread.
    Raises FilesError where the account cannot be asked.
    """
    opened = Share(account, share)
    try:
        opened.check()
        if directory and not opened.is_directory(directory):
            raise DirectoryNotFound(f"directory {directory} does not exist on share {share}")
        if script:
            _check_script(opened, script)
    except NotFound as error:
        return str(error)
    return ""


def _check_script(share: Share, path: str) -> None:
    """Raises FileNotFound that lists what is in the script's directory instead."""
    directory, _, name = path.strip("/").rpartition("/")
    names = [entry.name for entry in share.entries(directory) if not entry.is_directory]
    if name not in names:
        others = ", ".join(names[:MOST_NAMES]) or "no files"
        raise FileNotFound(f"there is no file {path} on share {share.name}; its directory has: {others}")
