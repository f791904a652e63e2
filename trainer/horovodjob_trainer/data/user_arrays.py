"""Data sets from arrays that the user gives: checked, and split where they have no test part."""

from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer import import_string
from horovodjob_trainer.data.arrays import Arrays, aligned_copy, checked_labels, classes_of
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.data.train_test_split import split_rows
from horovodjob_trainer.errors import DataError


def checked_pair(x: npt.NDArray[Any], y: npt.NDArray[Any], *, where: str, names: tuple[str, str]) -> Arrays:
    """A source over examples and labels; `where` and `names` say in errors what they are."""
    x_name, y_name = names
    if x.dtype.kind not in "uifb":
        raise DataError(f"{where}: {x_name} has the type {x.dtype}; give numbers")
    if x.ndim < 2 or not x.size:
        raise DataError(f"{where}: {x_name} has the shape {x.shape}; give one row or picture per example, at least one")
    if len(x) != len(y) if y.ndim else True:
        raise DataError(f"{where}: {x_name} has the shape {x.shape} and {y_name} {y.shape}; give as many of both")
    labels = checked_labels(y, what=f"{where}: {y_name}")
    if x.dtype == np.uint8 and x.ndim == 3:  # grey pictures, as MNIST's
        x = x[..., np.newaxis]
    return Arrays(x, labels, classes_of(labels))


def joined(train: Arrays, test: Arrays, *, where: str, name: str) -> Dataset:
    """Both parts as one data set, with the classes of both."""
    if train.shape != test.shape or train.examples.dtype != test.examples.dtype:
        raise DataError(
            f"{where}: examples to train on are {train.examples.dtype} of shape {train.shape} and those of the test "
            f"{test.examples.dtype} of shape {test.shape}; give both alike"
        )
    if (train.classes is None) != (test.classes is None) or train.labels.shape[1:] != test.labels.shape[1:]:
        raise DataError(f"{where}: the labels to train on are not of the kind of the test's; give both alike")
    classes = classes_of(train.labels, test.labels)
    return Dataset(train.with_classes(classes), test.with_classes(classes), name)


def divided(whole: Arrays, *, request: Request, where: str, name: str) -> Dataset:
    """A share of the examples for the test and the others to train on; each class gives its share."""
    if whole.samples < 2:
        raise DataError(f"{where}: one example cannot be divided into two parts; give more, or a test part")
    by_class = whole.labels if whole.classes is not None else None
    kept, tested = split_rows(whole.samples, share=request.validation_share, seed=request.seed, labels=by_class)
    return Dataset(whole.at(kept), whole.at(tested), name)


def from_function(request: Request) -> Dataset:
    """What the user's function gives: a Dataset, or ((x_train, y_train), (x_test, y_test)).

    It is called with those of path, image_size, seed, data_directory and threads that it declares.
    """
    where = request.dataset
    given = import_string.called(
        where,
        path=request.path,
        image_size=request.image_size,
        seed=request.seed,
        data_directory=request.data_directory,
        threads=request.threads,
    )
    if isinstance(given, Dataset):
        return given
    try:
        (x_train, y_train), (x_test, y_test) = given
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} gave neither ((x_train, y_train), (x_test, y_test)) nor a data.Dataset") from error
    train = _pair(x_train, y_train, where=where, part="train")
    return joined(train, _pair(x_test, y_test, where=where, part="test"), where=where, name=where)


def _pair(x: Any, y: Any, *, where: str, part: str) -> Arrays:
    x, y = np.asarray(x), np.asarray(y)
    pair = checked_pair(x, y, where=where, names=(f"x_{part}", f"y_{part}"))
    return Arrays(aligned_copy(pair.examples), pair.labels, pair.classes)
