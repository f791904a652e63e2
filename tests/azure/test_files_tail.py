"""Tail of a growing file on a share, from its first to its last byte."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from horovodjob.azurefiles import tail as tail_module
from horovodjob.azurefiles.errors import DirectoryNotFound, FileNotFound, ShareNotFound
from horovodjob.azurefiles.share import Share
from horovodjob.azurefiles.tail import tail
from support.azure_fakes.files.faults import Kind
from support.azure_fakes.files.server import FilesService

TEXT = "Epoch 1/25 – Verlust: 0,5 €\n全体 😀\n"


class Writer:
    """Writes one step each time the reader has nothing to read, and has finished after the last one."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)
        self.finished = threading.Event()

    def __call__(self, _: float) -> None:
        if self._steps:
            self._steps.pop(0)()
        if not self._steps:
            self.finished.set()


def tail_output(share: Share, path: str, *steps: Callable[[], object]) -> str:
    """All data read from a file while these steps change it."""
    writer = Writer(*steps)
    return "".join(tail(share, path, writer.finished.is_set, sleep=writer))


def appending(path: Path, data: bytes) -> Callable[[], object]:
    """A step that appends to a file."""

    def append() -> None:
        with path.open("ab") as file:
            file.write(data)

    return append


def test_characters_are_complete_wherever_the_file_is_cut(share: Share, disk: Path) -> None:
    steps = [appending(disk / "log", bytes([byte])) for byte in TEXT.encode()]
    writer = Writer(*steps)
    parts = list(tail(share, "log", writer.finished.is_set, sleep=writer))
    assert "".join(parts) == TEXT
    assert "😀" in parts


def test_data_written_between_the_last_poll_and_the_end_is_read(share: Share, disk: Path) -> None:
    (disk / "log").write_text("first ")
    looks = iter([False, True])

    def is_finished() -> bool:
        finished = next(looks)
        if finished:
            appending(disk / "log", b"last")()
        return finished

    assert "".join(tail(share, "log", is_finished, sleep=lambda _: None)) == "first last"


def test_bytes_that_are_not_text_are_kept(share: Share, disk: Path) -> None:
    data = bytes(range(256)) + "é".encode()[:1]
    text = tail_output(share, "log", appending(disk / "log", data))
    assert text.encode("utf-8", "surrogateescape") == data


def test_a_file_is_read_in_bounded_ranges(
    share: Share, service: FilesService, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_module, "RANGE_BYTES", 1000)
    (disk / "log").write_bytes(b"0123456789" * 250)
    assert tail_output(share, "log") == "0123456789" * 250
    assert [answered.range for answered in service.requests][:3] == [
        "bytes=0-999",
        "bytes=1000-1999",
        "bytes=2000-2999",
    ]


def test_a_file_and_its_directory_can_be_created_later(share: Share, disk: Path) -> None:
    log = disk / "a" / "log"
    assert tail_output(share, "a/log", log.parent.mkdir, log.touch, appending(log, b"text")) == "text"


def test_a_restarted_job_appends_to_the_same_file(share: Share, disk: Path) -> None:
    log = disk / "log"
    assert tail_output(share, "log", appending(log, b"one\n"), lambda: None, appending(log, b"two\n")) == "one\ntwo\n"


def test_a_truncated_file_is_read_again(share: Share, disk: Path) -> None:
    log = disk / "log"
    assert tail_output(share, "log", appending(log, b"first"), lambda: log.write_bytes(b"new")) == "firstnew"


def test_a_replaced_file_is_read_from_its_beginning(share: Share, disk: Path) -> None:
    def replace() -> None:
        (disk / "new").write_bytes(b"another file")
        (disk / "new").replace(disk / "log")

    assert tail_output(share, "log", appending(disk / "log", b"old"), replace) == "oldanother file"


def test_a_recreated_file_is_read_from_its_beginning(share: Share, disk: Path) -> None:
    log = disk / "log"
    steps = (appending(log, b"old"), log.unlink, appending(log, b"longer"))
    assert tail_output(share, "log", *steps) == "oldlonger"


@pytest.mark.parametrize("kind", [Kind.RESET, Kind.TRUNCATE, Kind.LOST_ANSWER])
def test_a_failure_loses_and_repeats_nothing(share: Share, service: FilesService, disk: Path, kind: Kind) -> None:
    log = disk / "log"

    def fail() -> None:
        service.faults.add(kind, "GET")
        appending(log, b"two ")()

    assert tail_output(share, "log", appending(log, b"one "), fail, appending(log, b"three")) == "one two three"


@pytest.mark.parametrize(("path", "error"), [("log", FileNotFound), ("a/log", DirectoryNotFound)])
def test_a_job_that_ends_without_the_file_is_an_error(share: Share, path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        tail_output(share, path)


def test_a_share_that_does_not_exist_is_an_error_at_once(share: Share) -> None:
    def never() -> Iterator[str]:
        return tail(Share(share.account, "nothing"), "log", lambda: False, sleep=lambda _: pytest.fail("it waited"))

    with pytest.raises(ShareNotFound):
        list(never())
