"""Images in TFRecord files, with random access to the records."""

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
from horovodjob_trainer.data.example_reader import decode_image, read_rows
from horovodjob_trainer.data.record_index import record_offsets
from horovodjob_trainer.data.sampling import Rows
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.data.tfrecord_features import feature_keys, largest_label, parse_features
from horovodjob_trainer.data.train_test_split import split_rows
from horovodjob_trainer.errors import DataError

NAMES_FILE = "labels.txt"


@dataclass(frozen=True, eq=False)
class Records:
    """A source over records; row i is the record at byte `offsets[i]` of `files[file_indexes[i]]`."""

    files: Sequence[str]
    file_indexes: Rows
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
        return read_rows(rows, self._example, shape=self.shape)

    def name(self, row: int) -> str:
        return f"{self.files[self.file_indexes[row]]} record {self._number(row)}"

    def read_error(self, row: int) -> str | None:
        import tensorflow as tf

        try:
            record = self._record(tf.constant(row, tf.int64))
        except tf.errors.OpError:
            return f"{self.name(row)} is damaged: its checksum is wrong; copy or write the file again"
        try:
            content, label = parse_features(record, self.keys)
        except tf.errors.OpError:
            return f"{self.name(row)} has no {self.keys[0]} and {self.keys[1]}; write the file again"
        if not 0 <= int(label) < self.classes:
            return f"{self.name(row)} has the label {int(label)}, outside 0 to {self.classes - 1}; correct {NAMES_FILE}"
        try:
            decode_image(content, self.size)
        except tf.errors.OpError:
            return f"{self.name(row)} contains no complete JPEG, PNG, BMP or GIF image; write the file again"
        return None

    def _example(self, row: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        content, label = parse_features(self._record(row), self.keys)
        assertion = tf.debugging.Assert((label >= 0) & (label < self.classes), [label])
        with tf.control_dependencies([assertion] if assertion is not None else []):
            return decode_image(content, self.size), tf.identity(label)

    def _record(self, row: Any) -> Any:
        """The record as bytes. TensorFlow checks both checksums."""
        import tensorflow as tf

        files, file_indexes, offsets = self._tensors
        file = tf.gather(files, tf.gather(file_indexes, row))
        # Without a buffer, because the next record in the file belongs to a different step.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=[file], compression_type="", buffer_size=0, byte_offsets=[tf.gather(offsets, row)]
        )
        return tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.string)).take(1).get_single_element()

    def _number(self, row: int) -> int:
        file = Path(self.files[self.file_indexes[row]])
        return int(np.searchsorted(record_offsets(file), self.offsets[row]))

    @cached_property
    def _tensors(self) -> tuple[Any, Any, Any]:
        files = eager_tensor([os.fsencode(file) for file in self.files])
        return files, eager_tensor(self.file_indexes), eager_tensor(self.offsets)


def tfrecord(path: Path, *, size: int, share: float, seed: int, threads: int) -> Dataset:
    """The data set in train*.tfrecord* and test*.tfrecord* in this folder. Without the latter, a share is for testing.

    Raises DataError with one sentence.
    """
    train_files, test_files = _files(path, "train"), _files(path, "test")
    if not train_files:
        raise DataError(f"{path} has no train*.tfrecord* files; set --data to the folder that contains them")
    names = _class_names(path)
    train = _records(train_files, size=size, names=names, threads=threads)
    if test_files:
        test = _records(test_files, size=size, names=names, threads=threads)
        classes = max(train.classes, test.classes)
        return Dataset(replace(train, classes=classes), replace(test, classes=classes), "tfrecord")
    train_rows, test_rows = split_rows(train.samples, share=share, seed=seed)
    return Dataset(_select(train, train_rows), _select(train, test_rows), "tfrecord")


def _records(files: list[Path], *, size: int, names: Sequence[str] | None, threads: int) -> Records:
    indexes = [record_offsets(file) for file in files]
    offsets = np.concatenate(indexes)
    if not len(offsets):
        raise DataError(f"{files[0]} and the other files contain no records; write them again")
    file_indexes = np.repeat(np.arange(len(files)), [len(index) for index in indexes])
    first = files[int(file_indexes[0])]
    keys = feature_keys(first)
    classes = len(names) if names else max(largest_label(file, keys, threads) for file in files) + 1
    return Records([str(file) for file in files], file_indexes, offsets, keys, size, classes, names)


def _select(source: Records, rows: Rows) -> Records:
    return replace(source, file_indexes=source.file_indexes[rows], offsets=source.offsets[rows])


def _files(folder: Path, part: str) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}; give the folder of the TFRecord files") from error
    found = [name for name in names if name.startswith(part) and ".tfrecord" in name]
    for name in found:
        numbered = re.search(r"-(\d+)-of-(\d+)", name)
        if numbered is not None and len(found) != int(numbered[2]):
            raise DataError(
                f"{folder / name} is one of {int(numbered[2])} files, of which {len(found)} exist; copy all of them"
            )
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
