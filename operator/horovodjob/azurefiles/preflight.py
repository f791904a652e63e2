"""Checks of a job's share before its pods are created. Blocks for the time of a few requests.

Both functions raise FilesError if the account does not answer.
"""

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.errors import NotFound
from horovodjob.azurefiles.share import Share

MOST_NAMES = 20


def missing_share(account: Account, share: str, directory: str = "") -> str:
    """An error message if the share, or the directory on it, does not exist; otherwise empty."""
    opened = Share(account, share)
    try:
        opened.check()
        found = not directory or opened.is_directory(directory)
    except NotFound as error:
        return str(error)
    return "" if found else f"directory {directory} does not exist on share {share} of storage account {account.name}"


def missing_script(account: Account, share: str, path: str) -> str:
    """An error message that lists the nearest existing directory if the file does not exist; otherwise empty."""
    opened = Share(account, share)
    try:
        opened.state(path)
    except NotFound:
        where = f"share {share} of storage account {account.name}"
        return f"there is no file {path} on {where}: {_nearest_directory(opened, path)}"
    return ""


def _nearest_directory(share: Share, path: str) -> str:
    directory, missing = path.rpartition("/")[0], ""
    while True:
        try:
            entries = [f"{entry.name}/" if entry.is_directory else entry.name for entry in share.entries(directory)]
            break
        except NotFound:
            if not directory:
                raise
            missing, directory = f"{directory} does not exist, and ", directory.rpartition("/")[0]
    shown = [*entries[:MOST_NAMES], *([f"... ({len(entries)} entries)"] if len(entries) > MOST_NAMES else [])]
    return f"{missing}{directory or 'the root of the share'} contains {' '.join(shown) or 'nothing'}"
