"""What a job needs of a share is looked at before its pods are made."""

from dataclasses import replace
from pathlib import Path

import pytest

from horovodjob.azurefiles.errors import AccessDenied
from horovodjob.azurefiles.preflight import missing
from horovodjob.azurefiles.share import Share


@pytest.mark.parametrize(
    ("share_name", "directory", "script", "sentence"),
    [
        ("myshare", "cifar", "cifar/train.py", ""),
        ("myshare", "", "", ""),
        ("nothing", "cifar", "cifar/train.py", "share nothing of storage account train does not exist"),
        ("myshare", "mnist", "", "directory mnist does not exist on share myshare"),
        ("myshare", "cifar", "cifar/trian.py", "no file cifar/trian.py on share myshare; its directory has: train.py"),
        ("myshare", "", "mnist/train.py", "mnist does not exist on share myshare"),
    ],
)
def test_the_first_that_is_missing_is_named(
    share: Share, disk: Path, share_name: str, directory: str, script: str, sentence: str
) -> None:
    (disk / "cifar" / "data").mkdir(parents=True)
    (disk / "cifar" / "train.py").touch()
    found = missing(share.account, share_name, directory=directory, script=script)
    assert sentence in found
    assert bool(sentence) is bool(found)


def test_an_account_that_cannot_be_asked_is_no_answer(share: Share, disk: Path) -> None:
    with pytest.raises(AccessDenied):
        missing(replace(share.account, key="YWJj"), "myshare")
