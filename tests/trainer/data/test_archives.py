"""The CIFAR archives and the digits: integrity checks, error messages and one download per node."""

import http.server
import os
import pickle
import re
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import data
from horovodjob_trainer.data import ANY_SHA256
from horovodjob_trainer.data.formats.cifar import CIFAR100, read_archive
from horovodjob_trainer.data.formats.download import download_file
from horovodjob_trainer.errors import DataError
from support.tutorial.cifar import cifar_images, python2_pickle
from trainer.support.waiting import TIMEOUT_SECONDS


def problem(path: Path, sha256: str = ANY_SHA256) -> str:
    with pytest.raises(DataError) as raised:
        read_archive(path, sha256, remedy="do this")
    sentence = str(raised.value)
    assert str(path) in sentence
    assert sentence.endswith("; do this")
    assert "\n" not in sentence
    return sentence


def test_an_archive_as_either_python_writes_it_is_read_with_any_number_of_images(
    tmp_path: Path, make_archive: Callable[..., str]
) -> None:
    sha256 = make_archive(tmp_path / "a.tar.gz", rows=7)
    read: Any = read_archive(tmp_path / "a.tar.gz", sha256, remedy="")
    assert read.train.examples.shape == (35, 32, 32, 3)
    assert read.test.examples.shape == (7, 32, 32, 3)
    pixels, labels = cifar_images(7, 5)
    np.testing.assert_array_equal(read.test.examples[3, :, :, 1], pixels[3].reshape(3, 32, 32)[1])
    assert read.test.labels.tolist() == labels
    make_archive(tmp_path / "a.tar.gz", test_batch=pickle.dumps(batch()))  # as Python 3 writes it
    read = read_archive(tmp_path / "a.tar.gz", ANY_SHA256, remedy="")
    assert read.test.labels.tolist() == [0, 9]


def batch(**changes: object) -> dict[str, object]:
    return {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 9]} | changes


def test_an_archive_that_is_absent_or_damaged_is_rejected_in_one_sentence(
    tmp_path: Path, make_archive: Callable[..., str]
) -> None:
    assert "does not exist" in problem(tmp_path / "absent.tar.gz")
    problem(tmp_path)
    path = tmp_path / "a.tar.gz"
    make_archive(path, rows=20)
    assert "instead of 0000" in problem(path, "0" * 64)
    content = path.read_bytes()
    for kept in (0, 30, len(content) - 100):
        path.write_bytes(content[:kept])
        problem(path)
    for position in (0.1, 0.3, 0.5, 0.7, 0.99):  # without a checksum
        flipped = bytearray(content)
        flipped[int(len(content) * position)] ^= 16
        path.write_bytes(flipped)
        problem(path)


def test_an_archive_of_another_layout_is_rejected_with_the_batch(
    tmp_path: Path, make_archive: Callable[..., str]
) -> None:
    make_archive(tmp_path / "a.tar.gz", data_batch_3=None)
    assert "lacks cifar-10-batches-py/data_batch_3" in problem(tmp_path / "a.tar.gz")
    for content in (
        batch(labels=[0]),
        batch(labels=[0, 10]),
        batch(labels=[0, "cat"]),
        batch(labels=None),
        batch(data=np.zeros((2, 3071), np.uint8)),
        batch(data=np.zeros((2, 3072), np.float32)),
        batch(data=[[0] * 3072] * 2),
        ["no", "dictionary"],
    ):
        make_archive(tmp_path / "a.tar.gz", rows=1, test_batch=pickle.dumps(content, protocol=2))
        assert "test_batch" in problem(tmp_path / "a.tar.gz")


class MaliciousObject:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_would_run_code_is_rejected(tmp_path: Path, make_archive: Callable[..., str]) -> None:
    make_archive(tmp_path / "a.tar.gz", test_batch=pickle.dumps(MaliciousObject(tmp_path / "ran")))
    assert "it names" in problem(tmp_path / "a.tar.gz")
    assert not (tmp_path / "ran").exists()


def test_the_digits_are_the_same_split_each_time_and_keep_their_classes() -> None:
    first: Any = data.digits()
    second: Any = data.digits()
    assert first.train.examples.shape == (1437, 32, 32, 3)
    assert first.test.examples.shape == (360, 32, 32, 3)
    assert np.bincount(first.test.labels).min() >= 34
    np.testing.assert_array_equal(first.test.examples, second.test.examples)
    assert not {image.tobytes() for image in first.train.examples} & {image.tobytes() for image in first.test.examples}


def test_cifar_100_has_its_fine_labels_and_their_names(tmp_path: Path) -> None:
    pixels = np.zeros((3, 3072), np.uint8)
    batch = {b"data": pixels, b"fine_labels": [99, 0, 50], b"coarse_labels": [1, 2, 3]}
    names = [f"kind {number}".encode() for number in range(100)]
    folder, archive = tmp_path / "cifar-100-python", tmp_path / "a.tar.gz"
    folder.mkdir()
    for name, value in {"train": batch, "test": batch, "meta": {b"fine_label_names": names}}.items():
        (folder / name).write_bytes(python2_pickle(value))
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    read: Any = data.load_dataset(data.Request(dataset="cifar100", archive=archive, archive_sha256="any"))
    assert read.train.labels.tolist() == [99, 0, 50]
    assert read.train.classes == 100
    assert read.test.class_names[99] == "kind 99"
    (folder / "test").unlink()
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    with pytest.raises(DataError, match="is not a CIFAR-100 archive: it lacks cifar-100-python/test; give another"):
        read_archive(archive, ANY_SHA256, layout=CIFAR100, remedy="give another")


@dataclass
class Source:
    url: str
    requests: list[str]
    content: bytes = b""
    second_half: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def source() -> Iterator[Source]:
    """A web server on the loopback interface that delays the second half of an archive."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(known.content)))
            self.end_headers()
            half = len(known.content) // 2
            self.wfile.write(known.content[:half])
            known.requests.append(self.path)
            known.second_half.wait(TIMEOUT_SECONDS)
            with suppress(ConnectionError):  # the client was killed
                self.wfile.write(known.content[half:])

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known = Source(f"http://127.0.0.1:{server.server_port}/cifar.tar.gz", [])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield known
    known.second_half.set()
    server.shutdown()
    thread.join()
    server.server_close()


PROGRAM = """
import os, pathlib, sys
from horovodjob_trainer.data import Request, load_dataset
print(os.getpid(), flush=True)
url, sha256, directory = sys.argv[1:]
request = Request(dataset="cifar10", archive_url=url, archive_sha256=sha256, data_directory=pathlib.Path(directory))
print(load_dataset(request).train.samples)
"""


@dataclass(frozen=True, slots=True)
class Loader:
    """A process that loads the data set of a source and then prints the number of its examples."""

    process: "subprocess.Popen[str]"
    pid: int

    def samples(self) -> str:
        return self.process.communicate(timeout=TIMEOUT_SECONDS)[0]


@pytest.fixture
def start_loader(preloaded_python: list[str], source: Source) -> Callable[[str, Path], Loader]:
    def start(sha256: str, directory: Path) -> Loader:
        command = [*preloaded_python, "-c", PROGRAM, source.url, sha256, str(directory)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return Loader(process, int(process.stdout.readline()))

    return start


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waits_for_a_lock(pid: int) -> bool:
    return re.search(rf"-> FLOCK .* {pid} ", Path("/proc/locks").read_text()) is not None


def test_a_download_that_is_killed_is_repeated_once_by_the_processes_of_a_node(
    tmp_path: Path, source: Source, start_loader: Callable[[str, Path], Loader], make_archive: Callable[..., str]
) -> None:
    sha256 = make_archive(tmp_path / "a.tar.gz")
    source.content = (tmp_path / "a.tar.gz").read_bytes()
    cache = tmp_path / "cache" / "data"
    first = start_loader(sha256, cache)
    wait_until(lambda: bool(source.requests))
    os.kill(first.pid, signal.SIGKILL)
    assert first.process.wait(timeout=TIMEOUT_SECONDS) == -signal.SIGKILL
    assert [path.suffix for path in cache.iterdir() if path.suffix != ".lock"] == [".part"]

    both = [start_loader(sha256, cache) for _ in range(2)]
    wait_until(lambda: len(source.requests) > 2 or any(waits_for_a_lock(one.pid) for one in both))
    source.second_half.set()
    assert [one.samples() for one in both] == ["20\n", "20\n"]
    assert source.requests == ["/cifar.tar.gz"] * 2
    assert sorted(path.suffix for path in cache.iterdir()) == [".gz", ".lock"]


def test_a_wrong_download_and_a_server_that_does_not_respond_are_rejected(tmp_path: Path, source: Source) -> None:
    source.content = b"not the archive"
    source.second_half.set()
    with pytest.raises(DataError, match="instead of 0000"):
        download_file(source.url, "0" * 64, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []
    with pytest.raises(DataError, match=r"^cannot download http://127.0.0.1:1/cifar.tar.gz .* use --archive"):
        download_file("http://127.0.0.1:1/cifar.tar.gz", "0" * 64, tmp_path)
