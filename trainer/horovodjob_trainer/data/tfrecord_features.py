"""The features of the tf.train.Example messages in TFRecord files: an encoded image and an integer label."""

import os
from collections.abc import Callable
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


def lengths_and_largest_label(
    file: Path, keys: tuple[str, str], check_format: Callable[[], object]
) -> tuple[npt.NDArray[np.int64], int]:
    """The length of each record without its frame, and the largest label. Reads and checks the whole file once.

    `check_format` is called if the file cannot be read, for a better message. Raises DataError.
    """
    import tensorflow as tf

    records = tf.data.TFRecordDataset(os.fsencode(file), buffer_size=BUFFER_BYTES)
    values = records.map(lambda record: (tf.strings.length(record), parse_features(record, keys)[1]))
    lengths: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
    largest = -1
    try:
        for batch, labels in values.batch(BATCH).as_numpy_iterator():
            if labels.min() < 0:
                record = sum(map(len, lengths)) + int(np.argmax(labels < 0))
                raise DataError(f"{file} record {record} has the label {labels.min()}; number the classes from 0")
            lengths.append(batch.astype(np.int64))
            largest = max(largest, int(labels.max()))
    except tf.errors.OpError as error:
        check_format()
        raise DataError(_record_error(file, values, keys)) from error
    return np.concatenate(lengths), largest


def _record_error(file: Path, values: Any, keys: tuple[str, str]) -> str:
    import tensorflow as tf

    read = 0
    try:
        for _ in values:
            read += 1
    except tf.errors.DataLossError:
        return f"{file} record {read} is damaged: its checksum is wrong; copy or write it again"
    except tf.errors.InvalidArgumentError:
        return f"{file} record {read} has no {keys[0]} and {keys[1]}; write the file again"
    except tf.errors.OpError as error:
        return f"{file} cannot be read: {' '.join(error.message.split())[:200]}; check the share"
    return f"{file} could not be read at first, but now it can; check the share"
