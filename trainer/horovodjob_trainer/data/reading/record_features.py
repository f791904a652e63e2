"""The features of the tf.train.Example messages in TFRecord files: an encoded image and an integer label."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.errors import DataError

IMAGE_KEYS, LABEL_KEYS = ("image/encoded", "image"), ("image/class/label", "label")
BUFFER_BYTES, BATCH = 1 << 20, 256


def feature_keys(file: Path) -> tuple[str, str]:
    """The names of the features for image and label in the first record of the file. Raises DataError."""
    import tensorflow as tf

    try:
        record = next(iter(tf.data.TFRecordDataset(os.fsencode(file)).take(1))).numpy()
        features = dict(tf.train.Example.FromString(record).features.feature)
    except tf.errors.OpError as error:
        raise DataError(f"{file} record 0 is damaged: its checksum is wrong; copy or write it again") from error
    except Exception as error:  # the class of protobuf is not public
        raise DataError(f"{file} contains no tf.train.Example messages; write it with them") from error
    image = next((key for key in IMAGE_KEYS if key in features and features[key].bytes_list.value), None)
    label = next((key for key in LABEL_KEYS if key in features and features[key].int64_list.value), None)
    if image is None or label is None:
        missing = " or ".join(IMAGE_KEYS if image is None else LABEL_KEYS)
        raise DataError(
            f"{file} has no feature {missing}, only {', '.join(sorted(features))}; write it with both features"
        )
    return image, label


def parse_features(record: Any, keys: tuple[str, str]) -> tuple[Any, Any]:
    """Content of the image and label of a record, as graph tensors."""
    import tensorflow as tf

    image, label = keys
    specification = {image: tf.io.FixedLenFeature((), tf.string), label: tf.io.FixedLenFeature((), tf.int64)}
    values = tf.io.parse_single_example(record, specification)
    return values[image], values[label]


def lengths_and_largest_labels(
    files: Sequence[Path], keys: tuple[str, str], threads: int, check_format: Callable[[Path], object]
) -> list[tuple[npt.NDArray[np.int64], int]]:
    """The length of each record of each file without its frame, and the largest label of the file.

    Reads and checks all files once. `check_format` is called for a file that cannot be read, for a better message.
    Raises DataError.
    """
    import tensorflow as tf

    def values(number: Any, file: Any) -> Any:
        found = _values(file, keys).batch(BATCH)
        return found.map(lambda lengths, labels: (number, lengths, labels))

    names = tf.data.Dataset.from_tensor_slices([os.fsencode(file) for file in files]).enumerate()
    batches = names.interleave(values, cycle_length=threads, num_parallel_calls=threads).prefetch(threads)
    lengths: list[list[npt.NDArray[np.int64]]] = [[np.zeros(0, np.int64)] for _ in files]
    largest = [-1] * len(files)
    try:
        for number, batch, labels in batches.as_numpy_iterator():
            if labels.min() < 0:
                record = sum(map(len, lengths[number])) + int(np.argmax(labels < 0))
                raise DataError(
                    f"{files[number]} record {record} has the label {labels.min()}; number the classes from 0"
                )
            lengths[number].append(batch.astype(np.int64))
            largest[number] = max(largest[number], int(labels.max()))
    except tf.errors.OpError as error:
        for file in files:  # the error of TensorFlow does not contain the file
            check_format(file)
            if problem := _record_error(file, keys):
                raise DataError(problem) from error
        raise DataError(f"{files[0].parent} could not be read at first, but now it can; check the share") from error
    return [(np.concatenate(parts), label) for parts, label in zip(lengths, largest, strict=True)]


def _values(file: Any, keys: tuple[str, str]) -> Any:
    """The length and the label of each record of a file."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(file, buffer_size=BUFFER_BYTES)
    return records.map(lambda record: (tf.strings.length(record), parse_features(record, keys)[1]))


def _record_error(file: Path, keys: tuple[str, str]) -> str | None:
    import tensorflow as tf

    read = 0
    try:
        for _ in _values(os.fsencode(file), keys):
            read += 1
    except tf.errors.DataLossError:
        return f"{file} record {read} is damaged: its checksum is wrong; copy or write it again"
    except tf.errors.InvalidArgumentError:
        return f"{file} record {read} has no {keys[0]} and {keys[1]}; write the file again"
    except tf.errors.OpError as error:
        return f"{file} cannot be read: {' '.join(error.message.split())[:200]}; check the share"
    return None
