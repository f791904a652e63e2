"""Checks of a job's share before its pods are created. Blocks for the time of a few requests.

Both functions raise FilesError if the account does not answer.
"""

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.errors import NotFound
from horovodjob.azurefiles.share import Share


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
    """An error message if the file does not exist; it has no other name of the share, which its reader may not list."""
    try:
        Share(account, share).state(path)
    except NotFound:
        return f"there is no file {path} on share {share} of storage account {account.name}"
    return ""
