"""The index of the files of a data set: later starts use it, and notice when it is stale, damaged or absent."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import data
from horovodjob_trainer.data.indexes.index_file import read_index, write_index
from horovodjob_trainer.errors import DataError
from trainer.data.batches import on_ranks

INDEX = {"images": ".horovodjob-images-index.npz", "tfrecord": ".horovodjob-tfrecord-index.npz"}


def age(folder: Path) -> None:
    """Set old times: a file or folder that changes at this moment is read again by the next start."""
    for directory, _, files in os.walk(folder):
        for path in (directory, *(os.path.join(directory, file) for file in files)):
            os.utime(path, (1e9, 1e9))


@pytest.fixture(params=["images", "tfrecord"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(tmp_path: Path, folders: Any, records: Any, kind: str) -> Path:
    """A data set of two classes in two folders or files."""
    root = tmp_path / "data"
    if kind == "images":
        folders(root / "train", ant=3, bee=3)
        folders(root / "test", ant=1)
    else:
        root.mkdir()
        for name in ("train-a", "train-b", "test"):
            records(root / f"{name}.tfrecord", [0, 1])
    age(root)
    return root


@pytest.fixture
def load(made: Path, kind: str, tmp_path: Path) -> Callable[[], tuple[Any, str]]:
    """Loads the data set. Returns it and its log."""

    def loaded() -> tuple[Any, str]:
        log: list[str] = []
        request = data.Request(
            dataset=kind, path=made, cache="none", image_size=24, output_directory=tmp_path / "output"
        )
        return data.load_dataset(request, data.Ranks(log=log.append)), "\n".join(log)

    return loaded


def test_a_later_start_uses_the_index_beside_the_data_or_makes_it_again(load: Any, made: Path, kind: str) -> None:
    first, log = load()
    assert f"The index for later starts is {made / INDEX[kind]}" in log
    assert "from the index" not in log
    second, log = load()
    assert "from the index" in log
    assert second.fingerprint == first.fingerprint
    assert [second.train.name(row) for row in range(4)] == [first.train.name(row) for row in range(4)]
    assert second.train.classes == 2

    index = made / INDEX[kind]
    for damaged in (index.read_bytes()[:-40], b""):
        index.write_bytes(damaged)
        third, log = load()
        assert third.fingerprint == first.fingerprint
        assert f"Ignoring the index {index}, which cannot be read: " in log
        assert "from the index" in load()[1]


def test_only_what_has_changed_is_read_again(load: Any, made: Path, kind: str, records: Any) -> None:
    load()
    if kind == "images":
        shutil.copy(made / "train" / "bee" / "000.png", made / "train" / "bee" / "new.png")
        expected, samples = "1 of 3 image folders are new or have changed", 7
    else:
        records(made / "train-b.tfrecord", [1, 0, 1])
        expected, samples = "1 of 3 files were read", 5
    changed, log = load()
    assert expected in log
    assert changed.train.samples == samples
    assert expected in load()[1], "it changed at this moment, so that its time does not identify its content"
    age(made)
    assert expected in load()[1]
    assert "from the index" in load()[1]
    (made / ("train/ant/001.png" if kind == "images" else "train-a.tfrecord")).unlink()
    assert load()[0].train.samples < samples


@pytest.mark.parametrize("kind", ["images"], indirect=True)
@pytest.mark.parametrize("place", ["absolute", "above"])
def test_an_index_that_somebody_has_planted_names_no_file_elsewhere(
    load: Any, made: Path, tmp_path: Path, place: str
) -> None:
    fingerprint = load()[0].fingerprint
    shutil.copy(made / "test" / "ant" / "000.png", tmp_path / "private.png")
    name = {"absolute": str(tmp_path / "private.png"), "above": "../../private.png"}[place]
    with np.load(made / INDEX["images"]) as file:
        arrays = dict(file)
    names = bytes(arrays["files"]).decode().split("\0")
    arrays["files"] = np.frombuffer("\0".join([name, *names[1:]]).encode(), np.uint8)
    np.savez(made / INDEX["images"], **arrays)
    os.utime(made, (1e9, 1e9))
    found, log = load()
    assert f"Ignoring the index of the images, which is inconsistent: {name!r} is not below the folder" in log
    assert found.fingerprint == fingerprint


def test_an_index_with_a_wrong_byte_is_ignored_or_read_correctly(tmp_path: Path) -> None:
    path, values = tmp_path / "index.npz", np.arange(100)
    write_index((path,), {"values": values}, lambda _: None)
    content = path.read_bytes()
    ignored: list[str] = []
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x5A]) + content[position + 1 :])
        found = read_index((path,), ("values",), ignored.append)
        assert found is None or np.array_equal(found["values"], values)
    assert len(ignored) > len(content) / 2


def test_without_permission_beside_the_data_the_index_is_in_the_output_directory(
    load: Any, made: Path, kind: str, tmp_path: Path
) -> None:
    (made / INDEX[kind] / "x").mkdir(parents=True)  # the tests run as root, whom permissions do not stop
    os.utime(made, (1e9, 1e9))
    _, log = load()
    assert f"The index for later starts is {tmp_path / 'output' / '.horovodjob-'}" in log
    assert "from the index" in load()[1]
    shutil.rmtree(tmp_path / "output")
    (tmp_path / "output").write_text("a file")
    found, log = load()
    assert found.train.samples
    assert "No index for later starts, because it cannot be written" in log


def test_runs_that_start_together_leave_an_intact_index(tmp_path: Path) -> None:
    paths, done, problems = (tmp_path / "index.npz",), threading.Event(), list[str]()

    def write(number: int) -> None:
        for _ in range(20):
            write_index(paths, {"a": np.full(20_000, number), "b": np.full(20_000, number)}, lambda _: None)

    def read() -> None:
        while not done.is_set():
            arrays = read_index(paths, ("a", "b"), problems.append)
            if arrays is not None and not np.array_equal(arrays["a"], arrays["b"]):
                problems.append("a mixture of two writes")

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert problems == []
    assert [path.name for path in tmp_path.iterdir()] == ["index.npz"]


def test_two_ranks_list_the_images_once_and_share_the_reading_of_records(
    folders: Any, records: Any, tmp_path: Path
) -> None:
    names = ("images", "tfrecord", "tfrecord_damaged")
    for rank in (0, 1):
        folders(tmp_path / f"images-{rank}", ant=4 * (1 - rank), bee=4 * (1 - rank))
        for name in names[1:]:
            (tmp_path / f"{name}-{rank}").mkdir()
            for number in range(4):
                records(tmp_path / f"{name}-{rank}" / f"train-{number}.tfrecord", [0, 1])
    # The files that the other rank reads. Rank 0 reads every second file.
    for rank, name in ((0, "tfrecord"), (1, "tfrecord"), (1, "tfrecord_damaged")):
        for number in {"tfrecord": (1 - rank, 3 - rank), "tfrecord_damaged": (3,)}[name]:
            file = tmp_path / f"{name}-{rank}" / f"train-{number}.tfrecord"
            file.write_bytes(bytes(file.stat().st_size))

    def load(ranks: data.Ranks) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            path = tmp_path / f"{name}-{ranks.rank}"
            try:
                dataset = data.load_dataset(
                    data.Request(dataset=name.partition("_")[0], path=path, cache="none", image_size=24), ranks
                )
                found[name] = (dataset.train.samples, dataset.fingerprint)
            except DataError as error:
                found[name] = str(error)
        return found

    first, second = on_ranks(load, 2)
    assert first == second
    assert first["images"][0] == first["tfrecord"][0] == 7
    assert "tfrecord_damaged-1/train-3.tfrecord" in first["tfrecord_damaged"]


def test_a_node_without_the_files_is_named(load: Any, made: Path, kind: str, tmp_path: Path) -> None:
    sent: list[Any] = []
    request = data.Request(dataset=kind, path=made, cache="none", image_size=24)

    def send(value: Any) -> Any:
        sent.append(value)
        return value

    data.load_dataset(request, data.Ranks(broadcast=send))
    shutil.rmtree(made)
    made.mkdir()
    received = iter(sent)
    other_node = data.Ranks(rank=1, size=2, broadcast=lambda _: next(received))
    with pytest.raises(DataError, match="every node needs the same files below --data"):
        data.load_dataset(request, other_node)
