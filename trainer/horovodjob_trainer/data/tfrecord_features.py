"""The features of the tf.train.Example messages in TFRecord files: an encoded image and an integer label."""

import os
from pathlib import Path
from typing import Any

from horovodjob_trainer.errors import DataError

IMAGE_KEYS, LABEL_KEYS = ("image/encoded", "image"), ("image/class/label", "label")


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


def largest_label(file: Path, keys: tuple[str, str], threads: int) -> int:
    """The largest label in a file. Reads and checks the whole file; raises DataError."""
    import tensorflow as tf

    records = tf.data.TFRecordDataset(os.fsencode(file))
    labels = records.map(lambda record: parse_features(record, keys)[1], num_parallel_calls=threads)
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
