"""A fake of Azure Files with one account and one share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from horovodjob.azurefiles.credentials import Options, choose_account
from horovodjob.azurefiles.share import Share
from support.azure_fakes.files.accounts import Account
from support.azure_fakes.files.server import FilesService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FilesService]:
    """The service with the account `train` and its share `myshare`."""
    directory = tmp_path / "train"
    (directory / "myshare").mkdir(parents=True)
    with FilesService([Account("train", directory)]) as running:
        yield running


@pytest.fixture
def disk(service: FilesService) -> Path:
    """Directory of the share, as pods write to it."""
    return service.accounts["train"].directory / "myshare"


@pytest.fixture
def share(service: FilesService) -> Share:
    """The share, opened with the account's key."""
    options = Options(connection_string=service.connection_string("train"))
    return Share(choose_account(None, options, {}), "myshare")
