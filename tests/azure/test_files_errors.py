"""An error of the service becomes one sentence with the remedy."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.fileshare import generate_share_sas

from horovodjob.azurefiles.credentials import Account
from horovodjob.azurefiles.download import download_file
from horovodjob.azurefiles.errors import AccessDenied, FilesError, Unavailable
from horovodjob.azurefiles.share import Share
from horovodjob.azurefiles.upload import upload_file
from support.azure_fakes.files.accounts import new_key
from support.azure_fakes.files.server import FilesService

HOUR = timedelta(hours=1)


def key(service: FilesService, value: str = "") -> Account:
    """The account, opened with its key or another one."""
    return Account("train", service.url("train"), "the given key", key=value or service.accounts["train"].key)


def sas(service: FilesService, permissions: str, lifetime: timedelta) -> Account:
    """The account, opened with a SAS for its share."""
    token = generate_share_sas(
        "train", "myshare", service.accounts["train"].key, permissions, datetime.now(UTC) + lifetime
    )
    return Account("train", service.url("train"), "the given SAS", sas=f"?{token}")


def firewalled(service: FilesService) -> Account:
    service.accounts["train"].firewalled = True
    return key(service)


def without_keys(service: FilesService) -> Account:
    service.accounts["train"].allows_keys = False
    return key(service)


@pytest.mark.parametrize(
    ("account", "error", "words"),
    [
        (lambda service: key(service, new_key()), AccessDenied, "does not accept the given key; it was rotated"),
        (lambda service: key(service, "abcde"), AccessDenied, "the given key is not an account key"),
        (lambda service: sas(service, "l", -HOUR), AccessDenied, "does not accept the given SAS; it has expired"),
        (lambda service: sas(service, "r", HOUR), AccessDenied, "the given SAS lacks the permission"),
        (firewalled, AccessDenied, "its network rules refuse this network"),
        (without_keys, AccessDenied, "allows no keys and no SAS; sign in with `az login`"),
        (lambda _: Account("train", "http://127.0.0.1:9/train", "k", key=new_key()), Unavailable, "no connection to"),
    ],
)
def test_an_error_contains_cause_and_remedy(
    service: FilesService, account: Callable[[FilesService], Account], error: type[FilesError], words: str
) -> None:
    opened = account(service)
    with pytest.raises(error, match=words) as raised:
        Share(opened, "myshare").entries("")
    message = str(raised.value)
    assert message.startswith(("storage account train", "share myshare of storage account train"))
    assert "\n" not in message
    assert not any(secret in message for secret in (opened.key, opened.sas) if secret)


def test_a_sas_is_sufficient_for_transfers(service: FilesService, disk: Path, tmp_path: Path) -> None:
    share = Share(sas(service, "rcwld", HOUR), "myshare")
    (tmp_path / "f").write_text("text")
    upload_file(share, tmp_path / "f", "f")
    download_file(share, "f", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == (disk / "f").read_text() == "text"
