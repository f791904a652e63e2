"""The files of a directory that a run sends."""

import random
from pathlib import Path

import pytest

from horovodjob_cli.errors import UsageError
from horovodjob_cli.runs import archive, directory
from horovodjob_cli.runs.directory import code_files


def write(root: Path, **files: str) -> None:
    """Files by path, in which __ is a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(root: Path) -> list[str]:
    return [file.path for file in code_files(root)]


def test_files_that_an_ignore_file_names_are_left_out_and_hvjignore_decides_last(tmp_path: Path) -> None:
    write(tmp_path, train="", data__a="", data__b="", package__big="", package__small="", package__data__c="")
    (tmp_path / ".gitignore").write_text("/data/*\nbig\n")
    (tmp_path / ".hvjignore").write_text("!data/b\n.gitignore\n.hvjignore\n")
    (tmp_path / "package" / ".gitignore").write_text("!big\nsmall\n.gitignore\n")
    assert paths(tmp_path) == ["data/b", "package/big", "package/data/c", "train"]


def test_repositories_environments_and_caches_are_left_out(tmp_path: Path) -> None:
    names = {".git__config": "", ".venv__bin__python": "", "package____pycache____a": ""}
    write(tmp_path, train="", **{name.replace("____pycache____", "__caches__"): text for name, text in names.items()})
    (tmp_path / "package" / "caches").rename(tmp_path / "package" / "__pycache__")
    assert paths(tmp_path) == ["train"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write(tmp_path, code__train="", shared__library="")
    (tmp_path / "code" / "shared").symlink_to(tmp_path / "shared")
    assert paths(tmp_path / "code") == ["shared/library", "train"]
    (tmp_path / "shared" / "back").symlink_to(tmp_path / "code")
    with pytest.raises(UsageError, match=r"back is a link to a directory above it; name it in \.hvjignore"):
        code_files(tmp_path / "code")


@pytest.mark.parametrize(
    ("name", "words"), [("lost", "a link to a file that does not exist"), ("two\nlines", "rename")]
)
def test_a_file_that_cannot_be_sent_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "missing") if name == "lost" else (tmp_path / name).write_text("")
    with pytest.raises(UsageError, match=words):
        code_files(tmp_path)


def test_a_directory_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_FILES", 2)
    write(tmp_path, a="", b="", c="")
    with pytest.raises(UsageError, match="more than 2 files; choose a directory with --workdir"):
        code_files(tmp_path)


def test_a_directory_that_no_config_map_can_hold_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_bytes(random.Random(1).randbytes(600 << 10))
    write(tmp_path, train="print()")
    with pytest.raises(UsageError, match=r"601 KiB compressed, .* The largest files: model\.h5 \(600 KiB\), train"):
        archive.archive(tmp_path, code_files(tmp_path))


def test_the_same_contents_are_the_same_config_map(tmp_path: Path) -> None:
    for copy in ("one", "other"):
        write(tmp_path / copy, train="print()")
    (tmp_path / "other" / "train").touch()
    packed = [archive.archive(tmp_path / copy, code_files(tmp_path / copy)) for copy in ("one", "other")]
    assert packed[0] == packed[1]
