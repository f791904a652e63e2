"""Data sets from arrays of the user, checked for consistency and split if they have no test part."""

from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.arrays import Arrays, aligned_copy, class_count, convert_labels
from horovodjob_trainer.data.formats.user_datasets import build_from_datasets, is_tf_dataset
from horovodjob_trainer.data.order import split_rows
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.import_string import call_function


def build_arrays(x: npt.NDArray[Any], y: npt.NDArray[Any], *, where: str, names: tuple[str, str]) -> Arrays:
    """A source over examples and labels. Raises DataError with `where` and `names` if they are invalid."""
    x_name, y_name = names
    if x.dtype.kind not in "uifb":
        raise DataError(f"{where}: {x_name} has the type {x.dtype}; use numbers")
    if x.ndim < 2 or not x.size:
        raise DataError(
            f"{where}: {x_name} has the shape {x.shape}; it needs one row per example, and at least one example"
        )
    if len(x) != len(y) if y.ndim else True:
        raise DataError(f"{where}: {x_name} has the shape {x.shape} and {y_name} {y.shape}; both need the same length")
    labels = convert_labels(y, name=f"{where}: {y_name}")
    if x.dtype == np.uint8 and x.ndim == 3:  # grey images, such as those of MNIST
        x = x[..., np.newaxis]
    return Arrays(x, labels, class_count(labels))


def build_dataset(train: Arrays, test: Arrays, *, where: str, name: str) -> Dataset:
    """A data set of both parts, with the classes of both. Raises DataError if the parts do not match."""
    if train.shape != test.shape or train.examples.dtype != test.examples.dtype:
        raise DataError(
            f"{where}: the training examples are {train.examples.dtype} of shape {train.shape}, the test examples "
            f"{test.examples.dtype} of shape {test.shape}; both need the same type and shape"
        )
    if (train.classes is None) != (test.classes is None) or train.labels.shape[1:] != test.labels.shape[1:]:
        raise DataError(f"{where}: the training labels and the test labels need the same type and shape")
    classes = class_count(train.labels, test.labels)
    return Dataset(train.with_classes(classes), test.with_classes(classes), name)


def split_arrays(arrays: Arrays, *, request: Request, where: str, name: str) -> Dataset:
    """A data set that uses a share of the examples, and of each class, for testing."""
    if arrays.samples < 2:
        raise DataError(f"{where}: one example cannot be split into training and test; add examples or a test part")
    by_class = arrays.labels if arrays.classes is not None else None
    train_rows, test_rows = split_rows(
        arrays.samples, share=request.validation_share, seed=request.seed, labels=by_class
    )
    return Dataset(arrays.select(train_rows), arrays.select(test_rows), name)


def load_from_function(request: Request) -> Dataset:
    """The data set from a function of the user: arrays, a Dataset, or one or two tf.data.Datasets.

    It is called with those of path, image_size, seed, data_directory and threads that it declares.
    """
    where = request.dataset
    result = call_function(
        where,
        path=request.path,
        image_size=request.image_size,
        seed=request.seed,
        data_directory=request.data_directory,
        threads=request.threads,
    )
    if isinstance(result, Dataset):
        return result
    if is_tf_dataset(result):
        return build_from_datasets(result, None, request)
    if isinstance(result, tuple) and len(result) == 2 and all(map(is_tf_dataset, result)):
        return build_from_datasets(*result, request)
    try:
        (x_train, y_train), (x_test, y_test) = result
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where} returned {type(result).__module__}.{type(result).__qualname__}; return a tf.data.Dataset, two of "
            "them for training and test, ((x_train, y_train), (x_test, y_test)) or a data.Dataset"
        ) from error
    train = _build_part(x_train, y_train, where=where, part="train")
    return build_dataset(train, _build_part(x_test, y_test, where=where, part="test"), where=where, name=where)


def _build_part(x: Any, y: Any, *, where: str, part: str) -> Arrays:
    x, y = np.asarray(x), np.asarray(y)
    arrays = build_arrays(x, y, where=where, names=(f"x_{part}", f"y_{part}"))
    return Arrays(aligned_copy(arrays.examples), arrays.labels, arrays.classes)
