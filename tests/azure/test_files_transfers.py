"""Uploads and downloads with a service that fails: a transfer is complete, or leaves no file."""

import hashlib
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from horovodjob.azurefiles import download, upload
from horovodjob.azurefiles.concurrency import BLOCKS_OF_A_FILE, FILES
from horovodjob.azurefiles.download import download_directory, download_file
from horovodjob.azurefiles.errors import AccessDenied, AlreadyExists, FilesError, Unavailable
from horovodjob.azurefiles.files import FileState
from horovodjob.azurefiles.share import Share
from horovodjob.azurefiles.upload import upload_contents, upload_directory, upload_file
from support.api_client import wait_for
from support.azure_fakes.files.faults import Fault, Kind, Pending
from support.azure_fakes.files.server import FilesService

MIB = 1 << 20


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """A directory of the user's machine."""
    directory = tmp_path / "local"
    directory.mkdir()
    return directory


@pytest.fixture
def model(disk: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A file `model.h5` on the share, of more blocks than are read at a time."""
    monkeypatch.setattr(download, "BLOCK_BYTES", 65536)
    data = os.urandom(3 * BLOCKS_OF_A_FILE * download.BLOCK_BYTES + 12345)
    (disk / "model.h5").write_bytes(data)
    return data


def names(directory: Path) -> list[str]:
    """Everything in a directory, hidden files too."""
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("size", [0, 4 * MIB, 9 * MIB + 1])
def test_a_file_has_its_name_when_it_is_complete_is_the_same_after_its_download_and_shows_its_progress(
    share: Share, local: Path, disk: Path, size: int
) -> None:
    name, data = "ü %+.bin", os.urandom(size)
    (local / "a").write_bytes(data)
    (disk / name).write_text("the old one")
    seen: set[bytes] = set()
    up: list[tuple[str, int, int]] = []
    down: list[tuple[str, int, int]] = []

    def sent(*step: Any) -> None:
        up.append(step)
        seen.add((disk / name).read_bytes()[:20])

    upload_file(share, local / "a", name, sent)
    download_file(share, name, local / "b", lambda *step: down.append(step))
    assert (local / "b").read_bytes() == data == (disk / name).read_bytes()
    assert (names(local), names(disk), seen) == (["a", "b"], [name], {b"the old one"})
    for steps in (up, down):
        assert (steps[0], steps[-1]) == ((name, 0, size), (name, size, size))
        assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)


@pytest.mark.parametrize(
    ("what", "error"),
    [("range", AccessDenied), ("rename", AccessDenied), ("interrupt", KeyboardInterrupt), ("growth", FilesError)],
)
def test_a_failed_upload_leaves_no_partial_file(
    share: Share, service: FilesService, local: Path, disk: Path, what: str, error: type[BaseException]
) -> None:
    (local / "a").write_bytes(bytes(9 * MIB))

    def disturb(_: str, done: int, __: int) -> None:
        if done and what == "interrupt":
            raise KeyboardInterrupt
        if what == "growth":
            with (local / "a").open("ab") as file:
                file.write(b"x")

    if error is AccessDenied:
        service.faults.add(Kind.DENIED, "PUT", what, after=1 if what == "range" else 0)
    with pytest.raises(error, match="changed while" if what == "growth" else None):
        upload_file(share, local / "a", "a", disturb)
    assert names(disk) == []


def test_an_upload_survives_failures_and_waits_as_long_as_a_throttled_answer_says(
    share: Share, service: FilesService, local: Path, disk: Path
) -> None:
    (local / "a").write_bytes(data := os.urandom(5 * MIB))
    service.faults.add(Kind.THROTTLED, times=2)
    for kind, comp in ((Kind.BUSY, "range"), (Kind.RESET, "range"), (Kind.LOST_ANSWER, "rename")):
        service.faults.add(kind, "PUT", comp)
    upload_file(share, local / "a", "a")
    assert (names(disk), (disk / "a").read_bytes()) == (["a"], data)
    assert [answered.status for answered in service.requests[:3]] == [429, 429, 201]


@pytest.mark.parametrize("kind", [Kind.BUSY, Kind.RESET, Kind.TRUNCATE])
def test_a_download_survives_one_failure(
    share: Share, service: FilesService, model: bytes, local: Path, kind: Kind
) -> None:
    service.faults.add(kind, "GET", after=1)
    download_file(share, "model.h5", local / "m")
    assert (names(local), (local / "m").read_bytes()) == (["m"], model)


def is_beyond_first_block(request: web.Request) -> bool:
    """Whether the request reads a later block of a file."""
    return request.method == "GET" and "bytes=0-" not in request.headers.get("x-ms-range", "bytes=0-")


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_download_resumes_after_a_failure_unless_the_file_has_changed(
    share: Share, service: FilesService, model: bytes, local: Path, disk: Path, is_changed: bool
) -> None:
    service.faults.pending.append(Pending(Fault(Kind.RESET), is_beyond_first_block, times=1000))
    with pytest.raises(Unavailable):
        download_file(share, "model.h5", local / "m")
    assert not (local / "m").exists()
    service.faults.pending.clear()
    service.requests.clear()
    if is_changed:
        (disk / "model.h5").write_bytes(model := os.urandom(len(model)))
    download_file(share, "model.h5", local / "m")
    assert ((local / "m").read_bytes(), names(local)) == (model, ["m"])
    found = {answered.range for answered in service.requests if answered.method == "GET"}
    assert (f"bytes=0-{download.BLOCK_BYTES - 1}" in found) is is_changed


def test_a_download_never_mixes_two_versions_of_a_file(share: Share, model: bytes, local: Path, disk: Path) -> None:
    changed, new = os.urandom(len(model)), disk / "new"
    new.write_bytes(changed)

    def replace(_: str, done: int, __: int) -> None:
        if done == download.BLOCK_BYTES and new.exists():
            new.replace(disk / "model.h5")

    download_file(share, "model.h5", local / "m", replace)
    assert (local / "m").read_bytes() == changed
    assert names(local) == ["m"]


def test_a_growing_small_file_is_downloaded_consistently(
    share: Share, local: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (disk / "log").write_bytes(b"1")
    state = share.state

    def grown_since(path: str) -> FileState:
        before = state(path)
        with (disk / path).open("ab") as file:
            file.write(b"23")
        return before

    monkeypatch.setattr(share, "state", grown_since)
    download_file(share, "log", local / "log")
    assert (local / "log").read_bytes() == b"123"


def test_directories_are_transferred_with_their_contents(share: Share, local: Path, disk: Path) -> None:
    (local / "a" / "b" / "empty").mkdir(parents=True)
    (local / "a" / "one").write_text("1")
    (local / "a" / "b" / "two").write_text("2")
    plans: list[tuple[int, int]] = []
    upload_directory(share, local / "a", "x/y", plan=lambda *plan: plans.append(plan))
    download_directory(share, "x/y", local / "copy", plan=lambda *plan: plans.append(plan))
    assert plans == [(2, 2), (2, 2)]
    for root in (disk / "x" / "y", local / "copy"):
        found = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
        assert found == ["b", "b/empty", "b/two", "one"]


def test_a_directory_is_created_with_its_parents(share: Share, disk: Path) -> None:
    assert [share.create_directory("a/b/c"), share.create_directory("a/b/c/"), share.create_directory("/a/d")] == [
        True,
        False,
        True,
    ]
    assert (disk / "a" / "b" / "c").is_dir()
    (disk / "f").touch()
    with pytest.raises(AlreadyExists):
        share.create_directory("f")


def written(service: FilesService) -> list[str]:
    """Names of the files whose content was sent, in the order of their names."""
    found = {each.path.rpartition("/")[2] for each in service.requests if "comp=range" in each.query}
    return sorted(name.partition(".hvj-")[0].removeprefix(".") for name in found)


def test_files_of_a_directory_are_transferred_side_by_side(share: Share, local: Path) -> None:
    (local / "a").mkdir()
    for number in range(FILES):
        (local / "a" / str(number)).write_text("1")
    together = threading.Barrier(FILES)

    def meet(_: str, done: int, __: int) -> None:
        if not done:
            together.wait(600)  # raises an error if the files are transferred one after the other

    upload_directory(share, local / "a", "a", meet)
    download_directory(share, "a", local / "copy", meet)


def test_a_second_upload_of_a_directory_sends_what_is_missing_or_has_changed(
    share: Share, service: FilesService, local: Path, disk: Path
) -> None:
    (local / "a").mkdir()
    for name in ("changed", "lost", "longer", "same", "written"):
        (local / "a" / name).write_text("1")
    upload_directory(share, local / "a", "a")
    service.requests.clear()
    (disk / "a" / "lost").unlink()
    (disk / "a" / "written").write_text("2")  # by a pod
    (local / "a" / "longer").write_text("12")
    (local / "a" / "changed").write_text("3")
    upload_directory(share, local / "a", "a")
    assert written(service) == ["changed", "longer", "lost", "written"]
    assert [(disk / "a" / name).read_text() for name in names(disk / "a")] == ["3", "12", "1", "1", "1"]


def test_an_upload_deletes_the_partial_files_of_killed_ones(share: Share, local: Path, disk: Path) -> None:
    (local / "a").mkdir()
    (local / "a" / "x.py").write_text("1")
    old, active, other = (f".{name}.hvj-{'0' * 15}{end}" for name, end in (("x.py", 1), ("x.py", 2), ("y", 3)))

    def leave(directory: Path) -> None:
        for name in (old, active, other):
            (directory / name).touch()
        for name in (old, other):
            os.utime(directory / name, (time.time() - 7200,) * 2)

    leave(disk)
    upload_file(share, local / "a" / "x.py", "x.py")
    assert names(disk) == [active, other, "x.py"]
    (disk / "a").mkdir()
    leave(disk / "a")
    upload_directory(share, local / "a", "a")
    assert names(disk / "a") == [active, "x.py"]


def test_an_upload_can_delete_what_the_source_does_not_have(share: Share, local: Path, disk: Path) -> None:
    (local / "a" / "b").mkdir(parents=True)
    (local / "a" / "Script.py").write_text("1")
    (disk / "a" / "old" / "older").mkdir(parents=True)
    (disk / "a" / "old" / "older" / "x").touch()
    (disk / "a" / "b").mkdir()
    (disk / "a" / "b" / "y").touch()
    (disk / "z").touch()
    upload_directory(share, local / "a", "a", delete=True)
    assert (names(disk), names(disk / "a"), names(disk / "a" / "b")) == (["a", "z"], ["Script.py", "b"], [])


BATCH_FILES = 25


@pytest.fixture
def contents(local: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Small files by the SHA-256 of their contents, of more than one batch."""
    monkeypatch.setattr(upload, "BATCH_FILES", BATCH_FILES)
    found = {}
    for number in range(BATCH_FILES + 10):
        data = f"{number}".encode()
        found[hashlib.sha256(data).hexdigest()] = path = local / f"{number}"
        path.write_bytes(data)
    return found


def complete(disk: Path) -> list[Path]:
    """The files that a run takes for complete."""
    return [path for path in disk.rglob("*") if path.is_file() and ".hvj-" not in str(path)]


def partial_names(disk: Path) -> list[str]:
    """The names of files and directories that are not complete."""
    names = (name for _, folders, files in os.walk(disk) for name in (*folders, *files))
    return [name for name in names if ".hvj-" in name]


def test_a_small_file_of_many_takes_two_requests_and_is_sent_once_although_an_answer_is_lost(
    share: Share, service: FilesService, contents: dict[str, Path], local: Path, disk: Path
) -> None:
    service.faults.add(Kind.LOST_ANSWER, "PUT", "rename")
    places = upload_contents(share, "files", contents)
    assert len(service.requests) <= 2 * len(contents) + 2 * 5  # the directories and their names
    assert {digest: (disk / "files" / place / digest).read_bytes() for digest, place in places.items()} == {
        digest: path.read_bytes() for digest, path in contents.items()
    }
    service.requests.clear()
    assert (upload_contents(share, "files", contents), written(service)) == (places, [])
    (local / "new").write_text("new")
    new = hashlib.sha256(b"new").hexdigest()
    assert upload_contents(share, "files", contents | {new: local / "new"}) == places | {new: ""}
    assert written(service) == [new]


@pytest.mark.parametrize("comp", ["range", "rename", ""])
def test_a_batch_that_fails_leaves_nothing(
    share: Share, service: FilesService, contents: dict[str, Path], disk: Path, comp: str
) -> None:
    (disk / "files").mkdir()
    service.faults.add(Kind.DENIED, "PUT", comp, after=1 if comp == "rename" else BATCH_FILES + 5)
    with pytest.raises(AccessDenied) as raised:
        upload_contents(share, "files", contents)
    assert ".hvj-" not in str(raised.value)
    wait_for("no partial file", lambda: not partial_names(disk))
    assert len(complete(disk)) == BATCH_FILES


def test_a_batch_of_an_upload_that_was_killed_is_sent_again_and_deleted_when_it_is_old(
    share: Share, service: FilesService, contents: dict[str, Path], disk: Path
) -> None:
    old, active = (disk / "files" / f".{name}.hvj-{name * 16}" for name in "ab")
    for batch in (old, active):
        batch.mkdir(parents=True)
        (batch / next(iter(contents))).write_text("half")
        os.utime(batch, (time.time() - 7200,) * 2)
    os.utime(old / next(iter(contents)), (time.time() - 7200,) * 2)
    places = upload_contents(share, "files", contents)
    assert (old.exists(), active.exists()) == (False, True)
    assert {place for place in places.values() if ".hvj-" in place} == set()
    assert len(complete(disk)) == len(contents)


def test_an_upload_whose_batch_was_deleted_as_stale_does_not_complete_it(
    share: Share, contents: dict[str, Path], disk: Path
) -> None:
    def other_upload(_: str, done: int, __: int) -> None:
        with suppress(FileNotFoundError):  # a call by another thread has deleted it
            for batch in (disk / "files").glob(".*.hvj-*"):
                for path in (*batch.iterdir(), batch):
                    os.utime(path, (time.time() - 7200,) * 2)
        if done:
            upload_contents(share, "files", {})

    with pytest.raises(FilesError):
        upload_contents(share, "files", contents, other_upload)
    assert complete(disk) == []
