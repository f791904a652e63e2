"""The batches of a script, which continue at the position of a run."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.data.order.steps import Steps
from horovodjob_trainer.errors import DataError

ORDER_PROBLEM = (
    "the dataset has another batch than the run had before it was interrupted: seed each shuffle, for example with "
    "keras.utils.set_random_seed, put cache() before shuffle(), or use hvd.Examples"
)


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
    def last_batch(self) -> int:
        """A fingerprint of the last batch of this rank, 0 if the position needs no check."""

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
    last_batch = 0  # the position is a number, and the start of a run seeks it

    def __init__(self, examples: Any, batch_size: int, seed: int = 1, load: Callable[..., Any] | None = None) -> None:
        self._arrays = [np.asarray(each) for each in tf.nest.flatten(examples)]
        lengths = sorted({len(each) if each.ndim else 0 for each in self._arrays})
        if len(lengths) != 1 or not lengths[0]:
            raise ValueError(f"hvd.Examples needs arrays of one length, not of {', '.join(map(str, lengths))}")
        if batch_size < 1:
            raise ValueError(f"batch_size of hvd.Examples must be at least 1, not {batch_size}")
        self._structure, self._load, self.seed, self.batch_size = examples, load, seed, batch_size
        self.epoch_examples = lengths[0]
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

    def iterator(self, state: RunState) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._dataset(state.position))
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

    A start of the run reads the batches of the interrupted epoch before the position again, and the first batch of each
    earlier epoch, so that shuffle() continues with its numbers: the iterator checkpoints of TensorFlow 2.18 lose them
    if a prefetch() has read an epoch to its end. The last batch before the position must be that of the run.
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
        self._is_continuous = length < 0
        self._last = tf.Variable(0, dtype=tf.int64, trainable=False)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False  # it would read and record batches ahead
        self._dataset = dataset.prefetch(tf.data.AUTOTUNE).map(self._record).with_options(options)
        self.element_spec = dataset.element_spec
        self._iterator: Any = None

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"data": "tf.data", "number of ranks": hvd.size(), "number of steps per epoch": self.epoch_examples}

    @property
    def last_batch(self) -> int:
        return int(self._last)

    def iterator(self, state: RunState) -> Any:
        if self._iterator is None:
            self._iterator = self._continued(state)
        elif not self._is_continuous:
            self._iterator = iter(self._dataset)
        return self._iterator

    def _continued(self, state: RunState) -> Any:
        if not state.step:
            return iter(self._dataset)
        epoch, before = divmod(state.position, self.epoch_examples)
        if self._is_continuous:
            before = state.position
        else:
            for _ in range(epoch):
                next(iter(self._dataset))
        if not before:
            return iter(self._dataset)
        iterator = iter(self._dataset.skip(before - 1))
        expected = state.batches[hvd.rank()] if len(state.batches) == hvd.size() else 0
        try:
            next(iterator)
        except StopIteration:
            raise DataError(f"the dataset ends before batch {before}, after which the run was interrupted") from None
        if self.last_batch != expected:
            raise DataError(ORDER_PROBLEM)
        return iterator

    def _record(self, *batch: Any) -> Any:
        """The batch. Its fingerprint is recorded when the script takes it, because nothing is read ahead after this."""
        parts = [each for each in tf.nest.flatten(batch) if _has_fingerprint(each)]
        prints = [tf.bitcast(tf.fingerprint(each[:1]), tf.int64) for each in parts]
        self._last.assign(tf.reduce_sum(tf.stack([tf.reduce_sum(each) for each in prints])) if prints else 0)
        return batch if len(batch) > 1 else batch[0]


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


def _has_fingerprint(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and value.shape.rank not in (None, 0) and value.dtype != tf.string
