"""Names of files that a store lists, on this machine."""

from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob.azurefiles import download
from horovodjob.azurefiles.download import download_directory, local_name
from horovodjob.azurefiles.errors import FilesError
from horovodjob.azurefiles.files import Entry, FileState, Part

OUTSIDE = ["..\\x", "..\\..\\Startup\\x.bat", "\\\\host\\share", "C:", "C:x", "D:\\x", "\\x", "file:stream"]
DEVICES = ["CON", "nul.txt", "Com1", "lpt9.log", "aux "]


class Store:
    """A store that lists one name."""

    def __init__(self, name: str, *, is_directory: bool) -> None:
        self.name, self.is_dir = name, is_directory

    def entries(self, directory: str) -> list[Entry]:
        return [Entry(self.name, self.is_dir, 1)] if directory == "root" else []

    def is_directory(self, path: str) -> bool:
        return True

    def lineage(self, directory: str) -> list[str]:
        return []

    def state(self, path: str) -> FileState:
        return FileState(1, "1", "1")

    def read(self, path: str, start: int, length: int) -> Part:
        return Part(b"x", self.state(path))

    def download_url(self, path: str, expiry: object) -> None:
        return None


@pytest.mark.parametrize("name", [*OUTSIDE, *DEVICES, "a?", "tab\t", "dot.", "space "])
@pytest.mark.parametrize("is_directory", [True, False])
def test_windows_writes_no_file_outside_of_the_directory(
    name: str, is_directory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "IS_WINDOWS", True)
    with pytest.raises(FilesError, match="cannot be the name of a file on Windows"):
        download_directory(Store(name, is_directory=is_directory), "root", tmp_path / "copy")
    assert [path.name for path in tmp_path.rglob("*")] == ["copy"]


@given(st.text(alphabet=st.sampled_from("ab.:\\/ C~-")))
def test_an_accepted_name_stays_in_its_directory(name: str) -> None:
    before, download.IS_WINDOWS = download.IS_WINDOWS, True
    try:
        accepted = local_name(name)
    except FilesError:
        return
    finally:
        download.IS_WINDOWS = before
    directory = PureWindowsPath("C:/users/ada/copy")
    assert (directory / accepted).parent == directory
    assert (directory / accepted).name == name


def test_other_systems_keep_such_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "IS_WINDOWS", False)
    download_directory(Store("..\\x:y", is_directory=False), "root", tmp_path / "copy")
    assert (tmp_path / "copy" / "..\\x:y").read_bytes() == b"x"
    for name in ("../x", "..", "", "a/b"):
        with pytest.raises(FilesError, match="is not the name of a file"):
            download_directory(Store(name, is_directory=False), "root", tmp_path / "other")
