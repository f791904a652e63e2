"""Tail of a growing file on a share, from its first to its last byte."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from horovodjob.azurefiles import tail as tail_module
from horovodjob.azurefiles.errors import DirectoryNotFound, FileNotFound, ShareNotFound
from horovodjob.azurefiles.share import Share
from horovodjob.azurefiles.tail import tail
from support.azure_fakes.files.faults import Kind
from support.azure_fakes.files.server import FilesService

TEXT = "Epoch 1/25 – Verlust: 0,5 €\n全体 😀\n"
BYTES = bytes(range(256)) + "é".encode()[:1]
Step = Callable[[Path], object]


class Writer:
    """Does one step each time the reader has nothing to read, and has finished after the last one."""

    def __init__(self, path: Path, *steps: Step) -> None:
        self._path, self._steps = path, list(steps)
        self.finished = threading.Event()

    def __call__(self, _: float) -> None:
        if self._steps:
            self._steps.pop(0)(self._path)
        if not self._steps:
            self.finished.set()


def parts(share: Share, path: Path, *steps: Step) -> list[str]:
    """What is read from the file `log` while these steps change it."""
    writer = Writer(path, *steps)
    return list(tail(share, path.name, writer.finished.is_set, sleep=writer))


def adding(data: bytes) -> Step:
    """A step that appends to the file."""

    def append(path: Path) -> None:
        with path.open("ab") as file:
            file.write(data)

    return append


def put_another(path: Path) -> None:
    path.with_name("new").write_bytes(b"another file")
    path.with_name("new").replace(path)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        pytest.param([Path.touch, adding(b"one\n"), lambda _: None, adding(b"two\n")], b"one\ntwo\n", id="later"),
        pytest.param([adding(b"first"), lambda log: log.write_bytes(b"new")], b"firstnew", id="truncated"),
        pytest.param([adding(b"old"), put_another], b"oldanother file", id="replaced"),
        pytest.param([adding(b"old"), Path.unlink, adding(b"longer")], b"oldlonger", id="recreated"),
        pytest.param([adding(BYTES)], BYTES, id="no text"),
    ],
)
def test_all_that_is_written_is_read_whatever_happens_to_the_file(
    share: Share, disk: Path, steps: list[Step], text: bytes
) -> None:
    assert "".join(parts(share, disk / "log", *steps)).encode("utf-8", "surrogateescape") == text


def test_characters_are_complete_wherever_the_file_is_cut(share: Share, disk: Path) -> None:
    found = parts(share, disk / "log", *(adding(bytes([byte])) for byte in TEXT.encode()))
    assert ("".join(found), "😀" in found) == (TEXT, True)


def test_data_written_between_the_last_poll_and_the_end_is_read(share: Share, disk: Path) -> None:
    (disk / "log").write_text("first ")
    looks = iter([False, True])

    def is_finished() -> bool:
        finished = next(looks)
        if finished:
            adding(b"last")(disk / "log")
        return finished

    assert "".join(tail(share, "log", is_finished, sleep=lambda _: None)) == "first last"


def test_a_file_is_read_in_bounded_ranges(
    share: Share, service: FilesService, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "RANGE_BYTES", 1000)
    (disk / "log").write_bytes(b"0123456789" * 250)
    assert "".join(parts(share, disk / "log")) == "0123456789" * 250
    ranges = ["bytes=0-999", "bytes=1000-1999", "bytes=2000-2999"]
    assert [answered.range for answered in service.requests][:3] == ranges


@pytest.mark.parametrize("kind", [Kind.RESET, Kind.TRUNCATE])
def test_a_failure_loses_and_repeats_nothing(share: Share, service: FilesService, disk: Path, kind: Kind) -> None:
    def fail(log: Path) -> None:
        service.faults.add(kind, "GET")
        adding(b"two ")(log)

    assert "".join(parts(share, disk / "log", adding(b"one "), fail, adding(b"three"))) == "one two three"


def test_a_file_or_a_share_that_does_not_exist_at_the_end_is_an_error(share: Share) -> None:
    for path, error in (("log", FileNotFound), ("a/log", DirectoryNotFound)):
        with pytest.raises(error):
            list(tail(share, path, lambda: True))
    with pytest.raises(ShareNotFound):
        list(tail(Share(share.account, "nothing"), "log", lambda: False, sleep=lambda _: pytest.fail("it waited")))
