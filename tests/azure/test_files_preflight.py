"""Checks of a share before the pods of a job are created."""

from dataclasses import replace
from pathlib import Path

import pytest

from horovodjob.azurefiles.errors import AccessDenied
from horovodjob.azurefiles.preflight import missing_script, missing_share
from horovodjob.azurefiles.share import Share


def test_a_missing_share_directory_or_script_is_named_without_other_names_of_the_share(
    share: Share, disk: Path
) -> None:
    (disk / "cifar").mkdir()
    (disk / "cifar" / "train.py").touch()
    for name, directory, sentence in (
        ("myshare", "cifar", ""),
        ("myshare", "", ""),
        ("nothing", "cifar", "share nothing of storage account train does not exist"),
        ("myshare", "mnist", "directory mnist does not exist on share myshare"),
    ):
        found = missing_share(share.account, name, directory)
        assert (sentence in found, bool(found)) == (True, bool(sentence))
    where = "on share myshare of storage account train"
    for script, sentence in (
        ("cifar/train.py", ""),
        ("cifar/trian.py", f"there is no file cifar/trian.py {where}"),
        ("mnist/a/train.py", f"there is no file mnist/a/train.py {where}"),
    ):
        assert missing_script(share.account, "myshare", script) == sentence
    with pytest.raises(AccessDenied):
        missing_share(replace(share.account, key="YWJj"), "myshare")
