"""Pictures in TFRecord files, read record by record in any order."""

import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from horovodjob_trainer.data.arrays import eager_tensor
from horovodjob_trainer.data.example_reader import decoded, rows_read
from horovodjob_trainer.data.record_index import record_offsets
from horovodjob_trainer.data.sampling import Rows
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.data.train_test_split import split_rows
from horovodjob_trainer.errors import DataError

PICTURE_KEYS, LABEL_KEYS = ("image/encoded", "image"), ("image/class/label", "label")
NAMES_FILE = "labels.txt"


@dataclass(frozen=True, eq=False)
class Records:
    """A source over records; row i is the record at byte `offsets[i]` of `files[places[i]]`."""

    files: Sequence[str]
    places: Rows
    offsets: Rows
    keys: tuple[str, str]
    size: int
    classes: int
    class_names: Sequence[str] | None = None
    keep: bool = False
    images = True

    @property
    def samples(self) -> int:
        return len(self.offsets)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.size, 3)

    @cached_property
    def fingerprint(self) -> str:
        names = " ".join(os.path.basename(file) for file in self.files).encode("utf-8", "surrogateescape")
        return f"{self.samples}x{self.shape} {zlib.crc32(self.offsets.tobytes(), zlib.crc32(names)):08x}"

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        return rows_read(rows, self._example, shape=self.shape)

    def name(self, row: int) -> str:
        return f"{self.files[self.places[row]]} record {self._number(row)}"

    def problem(self, row: int) -> str | None:
        import tensorflow as tf

        try:
            record = self._record(tf.constant(row, tf.int64))
        except tf.errors.OpError:
            return f"{self.name(row)} is damaged: its checksum is wrong; copy or write the file again"
        try:
            content, label = _features(record, self.keys)
        except tf.errors.OpError:
            return f"{self.name(row)} has no {self.keys[0]} and {self.keys[1]}; write the file again"
        if not 0 <= int(label) < self.classes:
            return f"{self.name(row)} has the label {int(label)}, outside 0 to {self.classes - 1}; mend {NAMES_FILE}"
        try:
            decoded(content, self.size)
        except tf.errors.OpError:
            return f"{self.name(row)} holds no whole JPEG, PNG, BMP or GIF picture; write the file again"
        return None

    def _example(self, row: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        content, label = _features(self._record(row), self.keys)
        known = tf.debugging.Assert((label >= 0) & (label < self.classes), [label])
        with tf.control_dependencies([known] if known is not None else []):
            return decoded(content, self.size), tf.identity(label)

    def _record(self, row: Any) -> Any:
        """The record as bytes; TensorFlow checks both of its checksums."""
        import tensorflow as tf

        files, places, offsets = self._tensors
        file = tf.gather(files, tf.gather(places, row))
        # The buffer is small: the record behind this one belongs to another step.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[file], compression_type="", buffer_size=0, byte_offsets=[tf.gather(offsets, row)]
        )
        return tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.string)).take(1).get_single_element()

    def _number(self, row: int) -> int:
        place = self.places[row]
        return int(np.searchsorted(record_offsets(Path(self.files[place])), self.offsets[row]))

    @cached_property
    def _tensors(self) -> tuple[Any, Any, Any]:
        files = eager_tensor([os.fsencode(file) for file in self.files])
        return files, eager_tensor(self.places), eager_tensor(self.offsets)


def tfrecord(path: Path, *, size: int, share: float, seed: int, threads: int) -> Dataset:
    """The data set in train*.tfrecord* and test*.tfrecord* of this folder; without the latter, a share is the test.

    Raises DataError with one sentence.
    """
    train_files, test_files = _files(path, "train"), _files(path, "test")
    if not train_files:
        raise DataError(f"{path} has no train*.tfrecord* files; give the folder that holds them with --data")
    names = _class_names(path)
    train = _records(train_files, size=size, names=names, threads=threads)
    if test_files:
        test = _records(test_files, size=size, names=names, threads=threads)
        classes = max(train.classes, test.classes)
        return Dataset(replace(train, classes=classes), replace(test, classes=classes), "tfrecord")
    kept, tested = split_rows(train.samples, share=share, seed=seed)
    return Dataset(_rows(train, kept), _rows(train, tested), "tfrecord")


def _records(files: list[Path], *, size: int, names: Sequence[str] | None, threads: int) -> Records:
    indexes = [record_offsets(file) for file in files]
    offsets = np.concatenate(indexes)
    if not len(offsets):
        raise DataError(f"{files[0]} and the files like it hold no records; write them again")
    places = np.repeat(np.arange(len(files)), [len(index) for index in indexes])
    first = files[int(places[0])]
    keys = _keys(first)
    classes = len(names) if names else max(_largest_label(file, keys, threads) for file in files) + 1
    return Records([str(file) for file in files], places, offsets, keys, size, classes, names)


def _rows(source: Records, rows: Rows) -> Records:
    return replace(source, places=source.places[rows], offsets=source.offsets[rows])


def _files(folder: Path, part: str) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}; give the folder of the TFRecord files") from error
    found = [name for name in names if name.startswith(part) and ".tfrecord" in name]
    for name in found:
        numbered = re.search(r"-(\d+)-of-(\d+)", name)
        if numbered is not None and len(found) != int(numbered[2]):
            raise DataError(f"{folder / name} is one of {int(numbered[2])} files, and {len(found)} are there; copy all")
    return [folder / name for name in found]


def _class_names(folder: Path) -> tuple[str, ...] | None:
    try:
        text = (folder / NAMES_FILE).read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / NAMES_FILE} cannot be read: {error}; write one class name a line") from error
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(names) < 2:
        raise DataError(f"{folder / NAMES_FILE} names fewer than two classes; write one class name a line")
    return names


def _keys(file: Path) -> tuple[str, str]:
    """Which of the usual features hold picture and label."""
    import tensorflow as tf

    try:
        record = next(iter(tf.data.TFRecordDataset(os.fsencode(file)).take(1))).numpy()
        features = dict(tf.train.Example.FromString(record).features.feature)
    except tf.errors.OpError as error:
        raise DataError(f"{file} record 0 is damaged: its checksum is wrong; copy or write it again") from error
    except Exception as error:  # protobuf's own, which is no public name
        raise DataError(f"{file} holds no tf.train.Example messages; write it with them") from error
    picture = next((key for key in PICTURE_KEYS if key in features and features[key].bytes_list.value), None)
    label = next((key for key in LABEL_KEYS if key in features and features[key].int64_list.value), None)
    if picture is None or label is None:
        missing = " or ".join(PICTURE_KEYS if picture is None else LABEL_KEYS)
        raise DataError(f"{file} has no feature {missing}, but {', '.join(sorted(features))}; write it with them")
    return picture, label


def _features(record: Any, keys: tuple[str, str]) -> tuple[Any, Any]:
    import tensorflow as tf

    picture, label = keys
    wanted = {picture: tf.io.FixedLenFeature((), tf.string), label: tf.io.FixedLenFeature((), tf.int64)}
    found = tf.io.parse_single_example(record, wanted)
    return found[picture], found[label]


def _largest_label(file: Path, keys: tuple[str, str], threads: int) -> int:
    """The largest label in a file, all of which is read and checked for that."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(os.fsencode(file))
    labels = records.map(lambda record: _features(record, keys)[1], num_parallel_calls=threads)
    read, largest = 0, -1
    try:
        for label in labels.prefetch(1024).as_numpy_iterator():
            if label < 0:
                raise DataError(f"{file} record {read} has the label {label}; number the classes from 0")
            largest = max(largest, int(label))
            read += 1
    except tf.errors.DataLossError as error:
        raise DataError(f"{file} record {read} is damaged: its checksum is wrong; copy or write it again") from error
    except tf.errors.InvalidArgumentError as error:
        raise DataError(f"{file} record {read} has no {keys[0]} and {keys[1]}; write the file again") from error
    return largest
