"""TFRecord files: random access, labels that are known before the first step, and error messages."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from horovodjob_trainer import data
from horovodjob_trainer.data.reading.example_reader import data_error
from horovodjob_trainer.errors import DataError
from trainer.data.batches import assert_equal

OWN = """
import keras

def build(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])
"""


def request(path: Path, **changes: Any) -> data.Request:
    settings: dict[str, Any] = {"dataset": "tfrecord", "path": path, "image_size": 24} | changes
    return data.Request(**settings)


def test_every_record_of_every_file_is_read_with_its_label(tmp_path: Path, records: Any, whole: Any) -> None:
    keys = ("image/encoded", "image/class/label")
    records(tmp_path / "train-00000-of-00002.tfrecord", [0, 2, 1], keys=keys)
    records(tmp_path / "train-00001-of-00002.tfrecord", [1, 1], first=3, keys=keys)
    records(tmp_path / "test.tfrecords", [0, 3], first=5, keys=keys)
    found = data.load_dataset(request(tmp_path))
    images, labels = whole(found.train, size=2)
    np.testing.assert_allclose(sorted(images[:, 9, 9, 2] * 255), range(5), atol=1e-3)
    assert [int(label) for label in labels[images[:, 9, 9, 2].argsort()]] == [0, 2, 1, 1, 1]
    assert whole(found.test)[1].tolist() == [0, 3]
    assert found.train.classes == found.test.classes == 4


def test_the_batches_are_the_same_from_memory_and_from_disk(tmp_path: Path, records: Any, train: Any) -> None:
    records(tmp_path / "train.tfrecord", [0, 1] * 12)
    in_memory, on_disk = (data.load_dataset(request(tmp_path, cache=cache)) for cache in ("memory", "none"))
    assert in_memory.fingerprint == on_disk.fingerprint
    assert (in_memory.train.samples, in_memory.test.samples) == (22, 2)
    assert_equal(train(in_memory.train), train(on_disk.train))


def test_class_names_come_from_a_file_and_a_label_without_a_name_is_rejected(
    tmp_path: Path, records: Any, train: Any, problem: Any
) -> None:
    (tmp_path / "labels.txt").write_bytes(b"\xef\xbb\xbfcat\r\n\r\ndog\r\n")  # as an editor of Windows writes it
    records(tmp_path / "train.tfrecord", [0, 1, 0, 2])
    records(tmp_path / "test.tfrecord", [0, 1])
    source = data.load_dataset(request(tmp_path, cache="none")).train
    assert source.class_names == ("cat", "dog")
    expected = f"{tmp_path}/train.tfrecord record 3 has the label 2, outside 0 to 1; correct labels.txt"
    assert problem(dataset="tfrecord", path=tmp_path, cache="memory") == expected
    with pytest.raises(Exception, match="row") as raised:
        train(source)
    assert str(data_error(raised.value, source)) == expected
    (tmp_path / "labels.txt").write_text("cat")
    assert "fewer than two classes" in problem(dataset="tfrecord", path=tmp_path, names=tmp_path / "labels.txt")


def test_a_damaged_record_is_named_when_it_is_read(tmp_path: Path, records: Any, train: Any, problem: Any) -> None:
    path = records(tmp_path / "train.tfrecord", [0, 1] * 4)
    source: Any = data.load_dataset(request(tmp_path, cache="none", validation_share=0.01)).train
    row = source.samples - 1
    content = bytearray(path.read_bytes())
    content[int(source.offsets[row]) + 30] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="row") as raised:
        train(source)
    expected = f"{source.name(row)} is damaged: its checksum is wrong; copy or write the file again"
    assert str(data_error(raised.value, source)) == expected
    assert problem(dataset="tfrecord", path=tmp_path).endswith(
        "is damaged: its checksum is wrong; copy or write it again"
    )


def test_invalid_files_are_rejected_with_the_cause(tmp_path: Path, records: Any, problem: Any) -> None:
    path = tmp_path / "train.tfrecord"

    def error() -> str:
        return str(problem(dataset="tfrecord", path=tmp_path, names=path))

    assert "has no train*.tfrecord* files" in problem(dataset="tfrecord", path=tmp_path, names=tmp_path)
    content = records(path, [0, 1, 1]).read_bytes()
    for kept in (len(content) - 3, len(content) // 2, 5):
        path.write_bytes(content[:kept])
        assert "is truncated or damaged in record" in error()
    path.write_bytes(content[:3] + b"\xff" + content[4:])  # a length of many gigabytes
    assert "in record 0, at byte 0" in error()
    with tf.io.TFRecordWriter(str(path), "GZIP") as file:
        file.write(b"x")
    assert "is compressed" in error()
    with tf.io.TFRecordWriter(str(path)) as file:
        file.write(b"\xff\xff no message")
    assert "no tf.train.Example" in error()
    second = 12 + int.from_bytes(content[:8], "little") + 4
    path.write_bytes(content[: second + 9] + b"\x00\x00" + content[second + 11 :])  # in the checksum of its length
    assert "record 1 is damaged: its checksum is wrong" in error()
    path.write_bytes(content[:40] + b"\xff" + content[41:])
    assert "record 0 is damaged: its checksum is wrong" in error()
    path.write_bytes(b"")
    assert "contain no records" in error()
    records(path, [0, 1], keys=("image", "target"))
    assert "no feature image/class/label or label, only image, target" in error()
    records(path, [0, -1])
    assert "record 1 has the label -1" in error()
    path.unlink()
    missing = records(tmp_path / "train-00000-of-00003.tfrecord", [0, 1])
    assert "is one of 3 files, of which 1 exist" in problem(dataset="tfrecord", path=tmp_path, names=missing)


def test_a_record_without_the_features_of_the_first_record_is_named(tmp_path: Path, records: Any, problem: Any) -> None:
    first = records(tmp_path / "train.tfrecord", [0, 1]).read_bytes()
    other = records(tmp_path / "other", [0], keys=("image", "target")).read_bytes()
    (tmp_path / "train.tfrecord").write_bytes(first + other)
    assert "record 2 has no image and label" in problem(dataset="tfrecord", path=tmp_path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        data.load_dataset(request(tmp_path / "none"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, records: Any) -> Path:
    """Five training files with 47 records and a test file, written long ago."""
    folder = tmp_path_factory.mktemp("shards")
    first = 0
    for number, count in enumerate((12, 3, 20, 7, 5)):
        records(folder / f"train-{number}.tfrecord", [0, 1, 2][:count] * (count // 3) + [0] * (count % 3), first=first)
        first += count
    records(folder / "test.tfrecord", [0, 1, 2])
    (folder / "labels.txt").write_text("a\nb\nc")
    make_old(folder)
    return folder


def make_old(folder: Path) -> None:
    """Times that are not those of this moment: files that may still change are not indexed."""
    for file in folder.glob("*.tfrecord"):
        os.utime(file, (1e9, 1e9))


def windowed(path: Path, **changes: Any) -> data.Dataset:
    return data.load_dataset(request(path, cache="none", shuffle="window", shuffle_window=16, **changes))


def brightness(batches: Any) -> list[int]:
    return [round(value) for images, _ in batches for value in (images[:, 9, 9, 0] * 255).tolist()]


def test_windowed_batches_are_the_same_after_a_resume_and_from_memory(shards: Path, train: Any) -> None:
    dataset, exact = windowed(shards), data.load_dataset(request(shards))
    assert exact.window is None  # the order of small data, unless a window is requested
    assert dataset.fingerprint == f"{exact.fingerprint} window 16"
    settings: dict[str, Any] = {"window": dataset.window, "size": 2, "batch": 3}
    whole = train(dataset.train, 40, rank=1, **settings, threads=1)
    resumed = train(dataset.train, 11, rank=1, position=7 * 6, **settings)
    in_memory = data.load_dataset(request(shards, cache="memory", shuffle="window", shuffle_window=16))
    assert in_memory.fingerprint == dataset.fingerprint
    assert_equal(resumed, whole[7:18])
    assert_equal(train(in_memory.train, 40, rank=1, **settings), whole)


def test_a_resume_with_other_ranks_reads_the_remaining_records_of_the_epoch_once(shards: Path, train: Any) -> None:
    dataset = windowed(shards)
    settings: dict[str, Any] = {"window": dataset.window, "batch": 4}
    read = brightness(batch for rank in (0, 1) for batch in train(dataset.train, 3, rank=rank, size=2, **settings))
    rest = [train(dataset.train, 2, rank=rank, size=3, position=24, streams=2, **settings) for rank in (0, 1, 2)]
    read += brightness(batch for step in zip(*rest, strict=True) for batch in step)
    assert sorted(read[:47]) == list(range(47))


def test_a_damaged_record_is_named_when_a_window_reads_it_and_spoils_no_other_record(
    tmp_path: Path, records: Any, train: Any
) -> None:
    path = records(tmp_path / "train.tfrecord", [0, 1] * 12)
    dataset = windowed(tmp_path, validation_share=0.3)
    train_source: Any = dataset.train
    numbers = train_source.numbers
    row = int(np.flatnonzero(np.diff(numbers) == 2)[0])  # a record for testing follows, and is read with it
    content = bytearray(path.read_bytes())
    content[int(train_source.offsets[row] + train_source.lengths[row]) + 40] ^= 1
    path.write_bytes(content)
    read = train(train_source, 4, window=dataset.window)
    assert len(set(brightness(read))) == 16
    row = train_source.samples - 1
    content[int(train_source.offsets[row]) + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="row") as raised:
        train(train_source, 5, window=dataset.window)
    assert str(data_error(raised.value, train_source)).startswith(f"{train_source.name(row)} is damaged")


def test_two_ranks_train_in_windows_and_the_next_run_uses_the_index(
    run: Any, trainer: Any, shards: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    flags = ("--dataset", "tfrecord", "--data", shards, "--cache", "none", "--image-size", 24, "--batch-size", 4,
             "--model", "own:build", "--threads", 1, "--tensorboard", "none")  # fmt: skip
    order = ("--shuffle", "window", "--shuffle-window", 16)
    program = trainer(*flags, *order, "--epochs", 2, "--dir", tmp_path / "out")
    ended = run(2, program, {"PYTHONPATH": str(tmp_path)})
    assert ended.code == 0, ended.stderr
    assert "Records are shuffled in windows of 16 for each rank\n" in ended.stdout
    assert "\nEpoch 2/2 6/6 " in ended.stdout  # 94 examples in 12 steps of 8
    assert "x_train shape: (47, 24, 24, 3)" in ended.stdout
    log: list[str] = []
    data.load_dataset(request(shards), data.Ranks(log=log.append))
    assert "from the index" in log[0]
