"""Data sets from tf.data.Datasets of the user: checks, and reading by index or into memory."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from horovodjob_trainer.data.caching import memory
from horovodjob_trainer.data.elements import Elements
from horovodjob_trainer.data.order import split_rows
from horovodjob_trainer.data.reading.example_reader import map_dataset, with_private_threads
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.launch import Launch

READ_AT_ONCE = 256  # elements
REASON_CHARACTERS = 300
STRING_BYTES = 24  # of a tensor for each string, in addition to its content


def is_tf_dataset(value: Any) -> bool:
    """Whether the value is a tf.data.Dataset. Does not import TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(value, tensorflow.data.Dataset)


def build_from_datasets(train: Any, test: Any, request: Request) -> Dataset:
    """The data set of a training and a test tf.data.Dataset, of which the second can be None.

    Raises DataError with one sentence.
    """
    where = request.dataset
    if test is None:
        whole = _elements(train, request, where)
        if whole.samples < 2:
            raise DataError(f"{where}: one example cannot be split into training and test; add examples or a test part")
        rows = split_rows(whole.samples, share=request.validation_share, seed=request.seed)
        parts = [whole.select(each).with_fingerprint() for each in rows]
        return Dataset(parts[0], parts[1], where)
    if train.element_spec != test.element_spec:
        raise DataError(
            f"{where}: the training elements are {train.element_spec} and the test elements {test.element_spec}; "
            "both need the same structure, types and shapes"
        )
    return Dataset(
        _elements(train, request, f"{where}, training part").with_fingerprint(),
        _elements(test, request, f"{where}, test part").with_fingerprint(),
        where,
    )


def _elements(dataset: Any, request: Request, where: str) -> Elements:
    """The elements, in memory if they fit or cannot be read by index, else read by index."""
    import tensorflow as tf

    spec = dataset.element_spec
    _check_spec(spec, where)
    count = int(dataset.cardinality())
    if count == tf.data.INFINITE_CARDINALITY:
        raise DataError(
            f"{where}: the dataset is infinite, so an epoch has no end; remove .repeat(), or add .take(NUMBER)"
        )
    budget = memory.budget_bytes(Launch.from_environment(os.environ).local_size)
    is_indexable = count >= 0 and _is_indexable(dataset)
    needed = count * sum(_bytes(part) for part in tf.nest.flatten(spec))
    if is_indexable and (request.cache == "none" or (request.cache == "auto" and needed > budget)):
        return Elements(spec, _at_least_one(count, where), _read_by_index(dataset, spec))
    parts = _read_into_memory(dataset, needed, budget, request.threads, where)
    count = _at_least_one(int(tf.shape(tf.nest.flatten(parts)[0])[0]), where)
    return Elements(spec, count, lambda rows: tf.nest.map_structure(lambda part: tf.gather(part, rows), parts))


def _check_spec(spec: Any, where: str) -> None:
    """Raise DataError unless an element is a tuple with a label, of tensors with fixed shapes."""
    import tensorflow as tf

    if not isinstance(spec, tuple) or len(spec) not in (2, 3):
        raise DataError(
            f"{where}: an element is {spec}, without a label; map each to (example, label) or (example, label, weight)"
        )
    for part in tf.nest.flatten(spec):
        if not isinstance(part, tf.TensorSpec):
            raise DataError(f"{where}: an element contains a {type(part).__name__}; use dense tensors of a fixed shape")
        if not part.shape.is_fully_defined():
            raise DataError(
                f"{where}: an element contains a tensor of shape {part.shape}, and every example needs the same; "
                "remove .batch(), because the trainer makes the batches, and pad examples of different lengths"
            )


def _is_indexable(dataset: Any) -> bool:
    import tensorflow as tf

    try:
        tf.data.experimental.at(dataset, 0)
    except (tf.errors.UnimplementedError, tf.errors.FailedPreconditionError):
        return False
    except tf.errors.OutOfRangeError:  # it is empty
        return True
    return True


def _read_by_index(dataset: Any, spec: Any) -> Callable[[Any], Any]:
    import tensorflow as tf

    def read(rows: Any) -> Any:
        each = tf.data.Dataset.from_tensor_slices(rows)
        examples = map_dataset(each, lambda row: tf.data.experimental.at(dataset, row), None)
        return examples.batch(tf.size(rows, tf.int64)).get_single_element()

    return read


def _read_into_memory(dataset: Any, needed: int, budget: int, threads: int, where: str) -> Any:
    """Tensors in memory with all elements. Raises DataError if they do not fit."""
    import tensorflow as tf

    advice = "give the pod more memory, or make the dataset from tf.data.Dataset.range(n).map(read), which has an index"
    if needed > budget:
        raise DataError(
            f"{where}: the examples have {memory.format_bytes(needed)}, and the memory budget of this process is "
            f"{memory.format_bytes(budget)}; {advice}"
        )
    batches: list[Any] = []
    read, size = 0, 0
    with tf.device("CPU:0"):
        for batch in _sentences(with_private_threads(dataset.batch(READ_AT_ONCE), threads), where):
            batches.append(batch)
            read += int(tf.shape(tf.nest.flatten(batch)[0])[0])
            size += sum(_bytes(part) for part in tf.nest.flatten(batch))
            if size > budget:
                raise DataError(
                    f"{where}: the length of the dataset is unknown, and its first {read} examples exceed the memory "
                    f"budget of this process, {memory.format_bytes(budget)}; check that it ends, {advice}"
                )
        if not batches:
            return tf.zeros((0,))
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *batches)


def _sentences(dataset: Any, where: str) -> Iterator[Any]:
    """The elements. Raises DataError for an operation that fails; errors of Python code keep their traceback."""
    import tensorflow as tf

    read = 0
    try:
        for batch in dataset:
            yield batch
            read += READ_AT_ONCE
    except tf.errors.OpError as error:
        if "Traceback" in error.message:
            raise
        reason = " ".join(re.sub(r"\{\{.*?\}\}|\[Op:.*", "", error.message).split())[:REASON_CHARACTERS]
        raise DataError(
            f"{where}: an example from number {read} on cannot be read: {reason}; correct what the function reads"
        ) from error


def _bytes(part: Any) -> int:
    """Size of a tensor or of a tensor with this specification, in which the content of strings has none."""
    import tensorflow as tf

    count = int(np.prod(part.shape))
    if part.dtype != tf.string:
        return count * int(part.dtype.size)
    content = int(tf.reduce_sum(tf.strings.length(part))) if tf.is_tensor(part) else 0
    return count * STRING_BYTES + content


def _at_least_one(count: int, where: str) -> int:
    if not count:
        raise DataError(f"{where}: the dataset has no examples; check what the function reads")
    return count
