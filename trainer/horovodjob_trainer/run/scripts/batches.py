"""The batches of a script, which continue at the position of a run."""

import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.data.order import Steps
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.run.pipeline import prefetched_to_device
from horovodjob_trainer.run.scripts.passes import Passes

ORDER_PROBLEM = (
    "the dataset has other batches than the run had before it was interrupted: seed each shuffle, for example with "
    "keras.utils.set_random_seed, sort lists of files, let map() draw only numbers of tf.random.stateless_*, or use "
    'hvd.Examples; resume="continue" ignores it'
)
ARRAYS_PROBLEM = (
    "the arrays of hvd.Examples are not those with which the run began, so their order is another one: pass the same "
    'arrays, for example from sorted lists of files; resume="continue" ignores it'
)
ARRAYS = "arrays in hvd.Examples"  # the name in messages
KEPT_ORDERS = 8  # more than the batches that are read ahead for a GPU
PARTS = [4**power for power in range(12)]  # numbers of batches of a pass of which a run keeps a fingerprint
AGAIN_SECONDS = 10.0  # for the batches of a complete pass, which a start reads again only to compare them
COMPARED_BYTES = 64 << 20  # of an array; of a larger one, rows at equal distances are compared


class Batches(Protocol):
    """Batches with a known position. A run counts `epoch_examples` in an epoch and `job_batch` in a step."""

    @property
    def epoch_examples(self) -> int: ...

    @property
    def job_batch(self) -> int: ...

    @property
    def unit(self) -> str:
        """The name of what the run counts."""

    @property
    def element_spec(self) -> Any:
        """The types and shapes of a batch, as in tf.data."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What must not change between the starts of a run."""

    @property
    def common(self) -> Mapping[str, Any]:
        """What must be the same on all ranks."""

    def order(self, position: int) -> list[int]:
        """What a later start compares: the batches of this rank up to this position, which the run has reached."""

    @property
    def problem(self) -> str | None:
        """Why the batches are not those of the interrupted run, after `iterator`."""

    def iterator(self, state: RunState) -> Any:
        """The iterator of tf.data for the next step of the run. Raises DataError."""


class Examples:
    """Shuffled batches of arrays that every rank has in whole. The number of ranks can change between starts.

    The order depends only on the seed: all ranks together read each example once in a pass, and a step of N ranks reads
    what one rank with N times the batch size would read. `examples` is an array or a structure of arrays, such as
    (x, y). `load` is a TensorFlow function of a batch of it, for example one that reads files whose paths are the
    examples.
    """

    unit = "samples"

    def __init__(self, examples: Any, batch_size: int, seed: int = 1, load: Callable[..., Any] | None = None) -> None:
        self._arrays = [np.asarray(each) for each in tf.nest.flatten(examples)]
        lengths = sorted({len(each) if each.ndim else 0 for each in self._arrays})
        if len(lengths) != 1 or not lengths[0]:
            raise ValueError(f"hvd.Examples needs arrays of one length, not of {', '.join(map(str, lengths))}")
        if batch_size < 1:
            raise ValueError(f"batch_size of hvd.Examples must be at least 1, not {batch_size}")
        self._structure, self._load, self.seed, self.batch_size = examples, load, seed, batch_size
        self.epoch_examples = lengths[0]
        self._fingerprints = [_array_fingerprint(each) for each in self._arrays]
        self.problem: str | None = None
        self._iterator: Any = None

    @property
    def job_batch(self) -> int:
        """The examples of all ranks in a step."""
        return self.batch_size * int(hvd.size())

    @property
    def element_spec(self) -> Any:
        return self._dataset(0).element_spec

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"data": f"{self.epoch_examples} examples", "seed": self.seed}

    @property
    def common(self) -> Mapping[str, Any]:
        return {"batch size": self.batch_size, **self.settings, ARRAYS: self._fingerprints}

    def order(self, position: int) -> list[int]:
        return self._fingerprints

    def iterator(self, state: RunState) -> Any:
        if self._iterator is None:
            self._iterator = iter(prefetched_to_device(self._dataset(state.position)))
            self.problem = ARRAYS_PROBLEM if state.order and state.order[0] != self._fingerprints else None
        return self._iterator

    def _dataset(self, position: int) -> Any:
        steps = Steps(
            batch=self.batch_size, seed=self.seed, rank=hvd.rank(), size=hvd.size(), position=position
        )  # fmt: skip
        types = [tf.as_dtype(each.dtype) for each in self._arrays]

        def batch(_: Any, rows: Any) -> Any:
            values = tf.numpy_function(lambda chosen: [each[chosen] for each in self._arrays], [rows], types)
            for value, array in zip(values, self._arrays, strict=True):
                value.set_shape((self.batch_size, *array.shape[1:]))
            return tf.nest.pack_sequence_as(self._structure, values)

        data = steps.rows(self.epoch_examples).map(batch)
        if self._load is not None:
            data = data.map(self._load, num_parallel_calls=tf.data.AUTOTUNE)
        return data.prefetch(tf.data.AUTOTUNE)


class TensorFlowBatches:
    """The batches of a tf.data.Dataset of this rank.

    A start of the run reads the batches of the interrupted pass before the position again, and the first batch of each
    earlier pass, so that shuffle() continues with its numbers: the iterator checkpoints of TensorFlow 2.18 lose
    them if a prefetch() has read a pass to its end. Of a pass on whose end later ones depend, it reads all batches.
    After a complete pass, it reads as many of its batches as it can in AGAIN_SECONDS. All these batches must be
    those of the run.
    """

    unit, job_batch = "batches", 1

    def __init__(self, dataset: Any, steps_per_epoch: int | None) -> None:
        length = int(dataset.cardinality())
        if length < 0 and steps_per_epoch is None:
            known = "is infinite" if length == tf.data.INFINITE_CARDINALITY else "has an unknown number of batches"
            raise ValueError(f"the dataset {known}, so the run needs steps_per_epoch")
        if length >= 0 and steps_per_epoch not in (None, length):
            raise ValueError(f"the dataset has {length} batches, and steps_per_epoch is {steps_per_epoch}: omit "
                             "steps_per_epoch, or repeat() the dataset")  # fmt: skip
        if length == 0:
            raise ValueError("the dataset has no batches")
        self.epoch_examples = int(steps_per_epoch or length)
        self.element_spec = dataset.element_spec
        self.problem: str | None = None
        self._passes = Passes.of(dataset)
        self._iterator: Any = None
        with tf.device("CPU:0"):
            # What `order` returns for the last positions, that for p in row p % KEPT_ORDERS: the number of passes that
            # have begun, the number of batches of the last one, a fingerprint of the first batches of all passes, one
            # of all batches of the last pass, and those of its first PARTS batches.
            self._orders = tf.Variable(tf.zeros([KEPT_ORDERS, 4 + len(PARTS)], tf.int64), trainable=False)
            self._position = tf.Variable(0, dtype=tf.int64, trainable=False)  # of the last batch that was read

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"data": "tf.data", "number of ranks": hvd.size(), "number of steps per epoch": self.epoch_examples}

    @property
    def common(self) -> Mapping[str, Any]:
        return {"data": "tf.data", "steps per epoch": self.epoch_examples}

    def order(self, position: int) -> list[int]:
        order = [int(each) for each in self._orders[position % KEPT_ORDERS].numpy()]
        return order[: 4 + sum(part <= order[1] for part in PARTS)]

    def iterator(self, state: RunState) -> Any:
        if self._iterator is None:
            steps = state.total - state.position  # without a limit, the next pass would be read ahead
            self._iterator = self._continued(state, steps) if state.step else self._batches(0, steps)
        return self._iterator

    def _batches(self, number: int, count: int) -> Any:
        return iter(prefetched_to_device(self._recorded(self._passes.from_pass(number).take(count))))

    def _continued(self, state: RunState, steps: int) -> Any:
        expected = state.order[hvd.rank()]
        begun, batches = expected[:2]
        is_complete = batches == self._passes.batches(begun - 1)
        last = begun if is_complete else begun - 1
        again = 0 if is_complete else batches
        try:
            for number in range(last - is_complete):
                iterator = iter(self._recorded(self._passes.earlier(number)))
                next(iterator)
                _read_to_end(iterator)
            if is_complete:
                self._compare_pass(state.position, expected)
                return self._batches(last, steps)
            self._begin(state.position - again, self.order(int(self._position)))
            iterator = self._batches(last, steps + again)
            for _ in range(again):
                next(iterator)
        except StopIteration:
            raise DataError(f"the dataset ends before step {state.step}, after which the run was interrupted") from None
        self.problem = None if self.order(state.position)[: len(expected)] == expected else ORDER_PROBLEM
        return iterator

    def _compare_pass(self, position: int, expected: list[int]) -> None:
        """Compare the batches of the last pass, which is complete, and let the next batch be the first after it."""
        begun, batches, _, whole, *parts = expected
        is_read_whole = self._passes.is_read_whole(begun - 1)
        iterator, end = iter(self._recorded(self._passes.whole(begun - 1))), time.monotonic() + AGAIN_SECONDS
        for number in range(self._passes.own_batches(begun - 1)):
            if number and time.monotonic() >= end and not is_read_whole:
                break
            next(iterator)
        _, count, firsts, own, *own_parts = self.order(int(self._position))
        if is_read_whole:
            _read_to_end(iterator)
        is_same = [firsts, *own_parts[: len(parts)]] == [expected[2], *parts[: len(own_parts)]]
        self.problem = None if is_same and (count < batches or own == whole) else ORDER_PROBLEM
        parts[: len(own_parts)] = own_parts
        self._begin(position, [begun, batches, firsts, own if count == batches else whole, *parts])

    def _begin(self, position: int, order: list[int]) -> None:
        """Let the next batch be that after this position and order."""
        self._position.assign(position)
        self._orders[position % KEPT_ORDERS].assign(order + [0] * (4 + len(PARTS) - len(order)))

    def _recorded(self, numbered: Any) -> Any:
        """The batches. Each is recorded when it is taken, because nothing is read ahead after this but for a GPU."""
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        fingerprints = numbered.map(lambda begins, batch: (begins, _batch_fingerprint(batch), batch))
        return fingerprints.prefetch(tf.data.AUTOTUNE).map(self._record).with_options(options)

    def _record(self, begins: Any, fingerprint: Any, batch: Any) -> Any:
        row = self._orders[self._position % KEPT_ORDERS]
        passes, batches, firsts, before = tf.unstack(row[:4])
        firsts = tf.where(begins, _fingerprint(tf.stack([firsts, fingerprint])), firsts)
        whole = tf.where(begins, fingerprint, _fingerprint(tf.stack([before, fingerprint])))
        count = tf.where(begins, tf.constant(1, tf.int64), batches + 1)
        parts = tf.where(begins, tf.zeros_like(row[4:]), row[4:])
        parts = tf.where(tf.constant(PARTS, tf.int64) == count, whole, parts)
        position = self._position.assign_add(1)
        numbers = tf.stack([passes + tf.cast(begins, tf.int64), count, firsts, whole])
        self._orders[position % KEPT_ORDERS].assign(tf.concat([numbers, parts], 0))
        return batch


def known_batches(data: Any, steps_per_epoch: int | None) -> Batches:
    """The batches of the data of a script. Raises ValueError for data without a known position."""
    if isinstance(data, Examples):
        if steps_per_epoch is not None:
            raise ValueError("hvd.Examples has a number of steps per epoch: omit steps_per_epoch")
        return data
    if isinstance(data, tf.data.Dataset):
        return TensorFlowBatches(data, steps_per_epoch)
    raise ValueError(
        f"data of the type {type(data).__name__} has no position from which a run can continue: pass a tf.data.Dataset "
        "of this rank, or hvd.Examples((x, y), batch_size) with the arrays of all ranks"
    )


def _read_to_end(iterator: Any) -> None:
    for _ in iterator:
        pass


def _batch_fingerprint(batch: Any) -> Any:
    """An int64 tensor that depends on each value of a batch, its type, shape and place, also of ragged tensors."""
    parts = [each for each in tf.nest.flatten(batch, expand_composites=True) if tf.is_tensor(each)]
    known = [each for each in parts if each.dtype not in (tf.variant, tf.resource)]  # those have no values
    values = [value for each in known for value in (_fingerprint(each), _fingerprint(tf.shape(each, tf.int64)))]
    return _fingerprint(tf.stack([*values, tf.constant(len(known), tf.int64)]))


def _fingerprint(value: Any) -> Any:
    return tf.bitcast(tf.fingerprint(tf.reshape(value, [1, -1])), tf.int64)[0]


def _array_fingerprint(array: Any) -> int:
    """A number that depends on each value of an array and its place, or on those of some rows of a large array."""
    rows = max(1, COMPARED_BYTES * len(array) // max(array.nbytes, 1))
    part = array if rows >= len(array) else array[np.linspace(0, len(array) - 1, rows).astype(np.int64)]
    text = f"{array.shape} {array.dtype.name}".encode()
    content = b"\0".join(str(each).encode() for each in part.flat) if part.dtype.hasobject else part.tobytes()
    return zlib.crc32(content, zlib.crc32(text))
