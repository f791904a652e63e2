"""Examples in the records of TFRecord files, with random access; neighbours are read together."""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from horovodjob_trainer.data.arrays import eager_tensor
from horovodjob_trainer.data.order import Rows, Steps
from horovodjob_trainer.data.reading.example_reader import map_dataset, read_intact_rows, read_rows
from horovodjob_trainer.data.reading.image_decoding import central_square, decoding_problem, random_crop
from horovodjob_trainer.data.reading.record_features import BUFFER_BYTES, parse_features
from horovodjob_trainer.data.source import DamagedExamples, Decode

NAMES_FILE = "labels.txt"
GAP_BYTES = 1 << 18  # to read this costs about as much as a second request to a file server
PARALLEL_READS = 4


@dataclass(frozen=True, eq=False)
class Records:
    """A source over records. Row i is record `numbers[i]` of `files[file_indexes[i]]`.

    It has `lengths[i]` bytes with its frame, from byte `offsets[i]`.
    """

    files: Sequence[str]
    file_indexes: Rows
    numbers: Rows
    offsets: Rows
    lengths: Rows
    keys: tuple[str, str]
    size: int
    classes: int
    class_names: Sequence[str] | None = None
    central_share: float = 1.0  # side of the central square, as a share of the shorter side, except in training
    exif: bool = True  # whether images are turned to their EXIF orientation
    damaged: DamagedExamples | None = None  # replaces records that cannot be read, instead of an error
    images, readers = True, 0

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

    def batches(self, rows: Any, *, batch: int, threads: int) -> Any:
        return self._read(rows, threads, central_square(self.size, self.central_share, exif=self.exif))

    def training_batches(self, steps: Steps, *, threads: int, crop: bool = False) -> Any:
        square = central_square(self.size, exif=self.exif)
        decode = random_crop(self.size, steps.seed, exif=self.exif) if crop else square
        if steps.window is None:
            return self._read(steps.rows(self.samples), threads, decode)
        blocks = map_dataset(
            steps.blocks(self.samples), lambda positions, rows: (positions, rows, self._contents(rows)), None
        )
        return self._read(blocks.prefetch(1).unbatch(), threads, decode)

    def name(self, row: int) -> str:
        return f"{self.files[self.file_indexes[row]]} record {self.numbers[row]}"

    def read_error(self, row: int) -> str | None:
        import tensorflow as tf

        try:
            record = self._record(tf.constant(row, tf.int64))
        except tf.errors.DataLossError:
            return f"{self.name(row)} is damaged: its checksum is wrong; copy or write the file again"
        except tf.errors.OpError as error:
            return f"{self.name(row)} cannot be read: {' '.join(error.message.split())[:200]}; check the share"
        try:
            content, label = parse_features(record, self.keys)
        except tf.errors.OpError:
            return f"{self.name(row)} has no {self.keys[0]} and {self.keys[1]}; write the file again"
        if not 0 <= int(label) < self.classes:
            return f"{self.name(row)} has the label {int(label)}, outside 0 to {self.classes - 1}; correct {NAMES_FILE}"
        if problem := decoding_problem(self.size, content.numpy()):
            return f"the image in {self.name(row)} cannot be read: {problem}; write the file again"
        return None

    def _read(self, rows: Any, threads: int, decode: Decode) -> Any:
        """Elements (position, images, labels) from elements (position, rows) or (position, rows, encoded examples)."""
        import tensorflow as tf

        def example(row: Any, record: Any, position: Any) -> tuple[Any, Any]:
            # A read ends at the first damaged record. It may belong to a different row, so the others are read again.
            record = tf.cond(tf.equal(record, b""), lambda: self._record(row), lambda: record)
            content, label = parse_features(record, self.keys)
            assertion = tf.debugging.Assert((label >= 0) & (label < self.classes), [label])
            with tf.control_dependencies([assertion] if assertion is not None else []):
                pixels = tf.numpy_function(decode, [content, position], tf.uint8, stateful=False)
                return tf.ensure_shape(pixels, self.shape), tf.identity(label)

        def read(position: Any, rows: Any, contents: Any = None) -> tuple[Any, Any, Any]:
            contents = self._contents(rows) if contents is None else contents
            positions = position + tf.range(tf.size(rows, tf.int64))
            if self.damaged is None:
                return position, *read_rows(rows, example, contents, positions, shape=self.shape)
            record = self.damaged.recorder(self.name)
            return position, *read_intact_rows(rows, example, contents, positions, shape=self.shape, record=record)

        return map_dataset(rows, read, threads)

    def _contents(self, rows: Any) -> Any:
        """The encoded examples, in few long reads where rows are neighbours. Empty for one that cannot be read."""
        import tensorflow as tf

        types = [tf.int64] * 5
        *parts, places = tf.numpy_function(self._reads, [rows], types, stateful=False)
        files, offsets, counts, sizes = (tf.ensure_shape(part, (None,)) for part in parts)
        reads = tf.data.Dataset.from_tensor_slices((tf.gather(self._names, files), offsets, counts, sizes))
        records = reads.map(_read_records, num_parallel_calls=PARALLEL_READS).unbatch()
        every = records.batch(tf.maximum(tf.reduce_sum(counts), 1)).get_single_element()
        return tf.reshape(tf.gather(every, places), tf.shape(rows))

    def _record(self, row: Any) -> Any:
        import tensorflow as tf

        file = tf.gather(self._names, tf.gather(self._file_indexes, row))
        return _records(file, tf.gather(self._offsets, row), 0).take(1).get_single_element()

    def _reads(self, rows: Rows) -> tuple[Rows, Rows, Rows, Rows, Rows]:
        """The reads that contain these rows: files, offsets, numbers of records and bytes; the place of each row."""
        unique, places = np.unique(rows, return_inverse=True)
        files, numbers, starts = self.file_indexes[unique], self.numbers[unique], self.offsets[unique]
        ends = starts + self.lengths[unique]
        is_first = np.ones(len(unique), bool)
        is_first[1:] = (files[1:] != files[:-1]) | (starts[1:] - ends[:-1] > GAP_BYTES)
        first = np.flatnonzero(is_first)
        last = np.append(first[1:], len(unique)) - 1
        counts = numbers[last] - numbers[first] + 1
        read = np.cumsum(is_first) - 1
        place = (np.cumsum(counts) - counts)[read] + numbers - numbers[first][read]
        return files[first], starts[first], counts, ends[last] - starts[first], place[places.reshape(-1)]

    @cached_property
    def _names(self) -> Any:
        return eager_tensor([os.fsencode(file) for file in self.files])

    @cached_property
    def _file_indexes(self) -> Any:
        return eager_tensor(self.file_indexes)

    @cached_property
    def _offsets(self) -> Any:
        return eager_tensor(self.offsets)


def _read_records(file: Any, offset: Any, count: Any, size: Any) -> Any:
    """`count` records from this offset; empty strings from the first one that cannot be read."""
    import tensorflow as tf

    records = _records(file, offset, tf.minimum(size, BUFFER_BYTES)).take(count).ignore_errors()
    ended = tf.data.Dataset.from_tensors("").repeat(count)
    return records.concatenate(ended).batch(count).take(1).get_single_element()


def _records(file: Any, offset: Any, buffer_bytes: Any) -> Any:
    """The records of a file from this offset, as bytes. TensorFlow checks both checksums of each."""
    import tensorflow as tf

    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[file], compression_type="", buffer_size=buffer_bytes, byte_offsets=[offset]
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec((), tf.string))
