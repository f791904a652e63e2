"""Data sets: whole or refused in one sentence, fetched once per node, read once per pass."""

import http.server
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob_trainer import data
from horovodjob_trainer.configuration import ANY_SHA256
from horovodjob_trainer.errors import DataError


def problem(path: Path, sha256: str = ANY_SHA256) -> str:
    with pytest.raises(DataError) as raised:
        data.read_archive(path, sha256, remedy="do this")
    sentence = str(raised.value)
    assert str(path) in sentence
    assert sentence.endswith("; do this")
    assert "\n" not in sentence
    return sentence


def test_an_archive_as_python_2_wrote_it_is_read_with_any_number_of_images(
    tmp_path: Path, make_archive: Callable[..., str], cifar_rows: Any
) -> None:
    sha256 = make_archive(tmp_path / "a.tar.gz", rows=7)
    read = data.read_archive(tmp_path / "a.tar.gz", sha256, remedy="")
    assert read.train.images.shape == (35, 32, 32, 3)
    assert read.test.images.shape == (7, 32, 32, 3)
    pixels, labels = cifar_rows(7, 5)
    np.testing.assert_array_equal(read.test.images[3, :, :, 1], pixels[3].reshape(3, 32, 32)[1])
    assert read.test.labels.tolist() == labels


@pytest.mark.parametrize("protocol", [2, 5])
def test_an_archive_rewritten_by_python_3_is_read_too(
    tmp_path: Path, make_archive: Callable[..., str], cifar_rows: Any, protocol: int
) -> None:
    pixels, labels = cifar_rows(4, 0)
    batch = pickle.dumps({"data": pixels, "labels": labels}, protocol=protocol)
    make_archive(tmp_path / "a.tar.gz", test_batch=batch)
    np.testing.assert_array_equal(data.read_archive(tmp_path / "a.tar.gz", ANY_SHA256, remedy="").test.labels, labels)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    assert "does not exist" in problem(tmp_path / "absent.tar.gz")


def test_a_directory_is_no_archive(tmp_path: Path) -> None:
    problem(tmp_path)


def test_an_archive_with_another_checksum_is_refused_before_it_is_read(
    tmp_path: Path, make_archive: Callable[..., str]
) -> None:
    make_archive(tmp_path / "a.tar.gz")
    assert "instead of 0000" in problem(tmp_path / "a.tar.gz", "0" * 64)


@pytest.mark.parametrize("kept", [0, 1, 30, 0.5, 0.99])
def test_a_truncated_archive_is_refused(tmp_path: Path, make_archive: Callable[..., str], kept: Any) -> None:
    make_archive(tmp_path / "a.tar.gz", rows=20)
    content = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(content[: kept if isinstance(kept, int) else int(len(content) * kept)])
    problem(tmp_path / "a.tar.gz")


@pytest.mark.parametrize("place", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99])
def test_a_flipped_bit_is_noticed_even_without_a_checksum(
    tmp_path: Path, make_archive: Callable[..., str], place: Any
) -> None:
    make_archive(tmp_path / "a.tar.gz", rows=20)
    content = bytearray((tmp_path / "a.tar.gz").read_bytes())
    content[int(len(content) * place)] ^= 16
    (tmp_path / "a.tar.gz").write_bytes(content)
    problem(tmp_path / "a.tar.gz")


def test_an_archive_that_lacks_a_batch_says_which(tmp_path: Path, make_archive: Callable[..., str]) -> None:
    make_archive(tmp_path / "a.tar.gz", data_batch_3=None)
    assert "lacks cifar-10-batches-py/data_batch_3" in problem(tmp_path / "a.tar.gz")


def batch(**changes: object) -> dict[str, object]:
    return {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 9]} | changes


@pytest.mark.parametrize(
    "content",
    [
        batch(labels=[0]),
        batch(labels=[0, 10]),
        batch(labels=[0, "cat"]),
        batch(labels=None),
        batch(data=np.zeros((2, 3071), np.uint8)),
        batch(data=np.zeros((2, 3072), np.float32)),
        batch(data=[[0] * 3072] * 2),
        ["no", "dictionary"],
    ],
)
def test_a_batch_of_another_layout_is_refused(tmp_path: Path, make_archive: Callable[..., str], content: Any) -> None:
    make_archive(tmp_path / "a.tar.gz", test_batch=pickle.dumps(content, protocol=2))
    assert "test_batch" in problem(tmp_path / "a.tar.gz")


class Malice:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_wants_to_run_code_does_not(tmp_path: Path, make_archive: Callable[..., str]) -> None:
    make_archive(tmp_path / "a.tar.gz", test_batch=pickle.dumps(Malice(tmp_path / "ran")))
    assert "it names" in problem(tmp_path / "a.tar.gz")
    assert not (tmp_path / "ran").exists()


def test_the_digits_are_the_same_split_each_time_and_keep_their_classes() -> None:
    once, again = data.digits(), data.digits()
    assert once.train.images.shape == (1437, 32, 32, 3)
    assert once.test.images.shape == (360, 32, 32, 3)
    assert np.bincount(once.test.labels).min() >= 34
    np.testing.assert_array_equal(once.test.images, again.test.images)
    assert not {image.tobytes() for image in once.train.images} & {image.tobytes() for image in once.test.images}


@given(samples=st.integers(1, 90), size=st.integers(1, 5), batch=st.integers(1, 20), seed=st.integers(0, 9))
def test_in_each_pass_every_row_is_read_once_by_one_rank(samples: int, size: Any, batch: int, seed: int) -> None:
    steps = range(-(-2 * samples // (size * batch)))
    read = [
        data.rows_of_step(step, samples=samples, batch=batch, rank=rank, size=size, seed=seed)
        for step in steps
        for rank in range(size)
    ]
    sequence = np.concatenate(read)
    assert sorted(sequence[:samples]) == list(range(samples))
    assert sorted(sequence[samples : 2 * samples]) == list(range(samples))


@given(size=st.integers(1, 6), step=st.integers(0, 50))
def test_ranks_together_read_what_one_rank_with_all_their_images_reads(size: Any, step: int) -> None:
    parts = [data.rows_of_step(step, samples=37, batch=4, rank=rank, size=size, seed=1) for rank in range(size)]
    whole = data.rows_of_step(step, samples=37, batch=4 * size, rank=0, size=1, seed=1)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_passes_and_seeds_have_different_orders() -> None:
    def order(number: int, seed: int) -> list[int]:
        return list(data.rows_of_step(number, samples=50, batch=50, rank=0, size=1, seed=seed))

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(1, 1)
    assert order(0, 1) != order(0, 2)


def test_the_shards_of_a_split_are_the_split() -> None:
    split = data.Split(np.zeros((11, 32, 32, 3), np.uint8), np.arange(11))
    labels = np.concatenate([split.shard(rank, 3).labels for rank in range(3)])
    assert sorted(labels) == list(range(11))


@dataclass
class Source:
    url: str
    requests: list[str]
    content: bytes = b""


@pytest.fixture
def source() -> Iterator[Source]:
    """A web server on the loopback interface that takes its time for an archive."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known.requests.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(known.content)))
            self.end_headers()
            half = len(known.content) // 2
            self.wfile.write(known.content[:half])
            time.sleep(1.5)
            self.wfile.write(known.content[half:])

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known = Source(f"http://127.0.0.1:{server.server_port}/cifar.tar.gz", [])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


def test_two_processes_of_a_node_download_once(tmp_path: Path, source: Any, make_archive: Callable[..., str]) -> None:
    sha256 = make_archive(tmp_path / "a.tar.gz")
    source.content = (tmp_path / "a.tar.gz").read_bytes()
    program = (
        "import sys, pathlib; from horovodjob_trainer.data import downloaded, read_archive\n"
        "path = downloaded(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]))\n"
        "print(len(read_archive(path, sys.argv[2], remedy='').train))"
    )
    command = [sys.executable, "-c", program, source.url, sha256, str(tmp_path / "cache" / "data")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in processes] == ["20\n", "20\n"]
    assert source.requests == ["/cifar.tar.gz"]


def test_a_wrong_download_is_refused_and_leaves_nothing_behind(tmp_path: Path, source: Any) -> None:
    source.content = b"not the archive"
    with pytest.raises(DataError, match="instead of 0000"):
        data.downloaded(source.url, "0" * 64, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_a_source_that_is_away_is_named_with_the_remedy(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/cifar.tar.gz"
    with pytest.raises(DataError, match=r"cannot download http://127.0.0.1:1/cifar.tar.gz .* give --archive") as raised:
        data.downloaded(url, "0" * 64, tmp_path)
    assert "\n" not in str(raised.value)
