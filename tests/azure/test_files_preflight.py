"""Checks of a share before the pods of a job are created."""

from dataclasses import replace
from pathlib import Path

import pytest

from horovodjob.azurefiles.errors import AccessDenied
from horovodjob.azurefiles.preflight import missing_script, missing_share
from horovodjob.azurefiles.share import Share


@pytest.mark.parametrize(
    ("share_name", "directory", "sentence"),
    [
        ("myshare", "cifar", ""),
        ("myshare", "", ""),
        ("nothing", "cifar", "share nothing of storage account train does not exist"),
        ("myshare", "mnist", "directory mnist does not exist on share myshare"),
    ],
)
def test_a_missing_share_or_directory_is_reported(
    share: Share, disk: Path, share_name: str, directory: str, sentence: str
) -> None:
    (disk / "cifar").mkdir()
    found = missing_share(share.account, share_name, directory)
    assert sentence in found
    assert bool(sentence) is bool(found)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("cifar/train.py", ""),
        ("cifar/trian.py", "there is no file cifar/trian.py on share myshare of storage account train"),
        ("mnist/a/train.py", "there is no file mnist/a/train.py on share myshare of storage account train"),
    ],
)
def test_a_missing_script_is_reported_without_other_names_of_the_share(
    share: Share, disk: Path, script: str, sentence: str
) -> None:
    (disk / "cifar").mkdir(parents=True)
    (disk / "cifar" / "train.py").touch()
    found = missing_script(share.account, "myshare", script)
    assert found == sentence


def test_an_unreachable_account_has_no_result(share: Share, disk: Path) -> None:
    with pytest.raises(AccessDenied):
        missing_share(replace(share.account, key="YWJj"), "myshare")
