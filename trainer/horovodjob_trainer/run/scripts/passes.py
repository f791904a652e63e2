"""The passes of a tf.data.Dataset, each of which a start of a run can begin without a read of the earlier ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import tensorflow as tf

Apply = Callable[[Any], Any]
DETERMINISTIC = {"true": True, "false": False, "default": None}


@dataclass(frozen=True, slots=True)
class Passes:
    """Endless passes over a dataset.

    A pass has `elements` elements (None: unknown until it ends), and `apply` makes batches of `batch` elements. A batch
    at the end of a pass can contain elements of the next one.
    """

    dataset: Any
    elements: int | None
    batch: int
    apply: Apply

    @classmethod
    def of(cls, dataset: Any) -> Self:
        """The passes of a dataset. After `repeat()` it can have the operations of `_operation`.

        Without `repeat()`, a pass is the whole dataset. One that is infinite for another reason is a single pass.
        """
        node, operations, batch = dataset, list[Apply](), 1
        while (operation := _operation(node)) is not None:
            operations.insert(0, operation)
            batch *= int(getattr(node, "_batch_size", 1))
            node = node._input_dataset
        count = _repeats(node)
        repeated = node._input_dataset if count else None

        def apply(elements: Any) -> Any:
            for each in operations:
                elements = each(elements)
            return elements

        # The first batch of a pass must not contain elements of the next one, which would begin with it.
        elements = None if repeated is None else _length(repeated)
        is_regular = elements is not None and (count < 0 or not count * elements % batch)
        if elements is not None and is_regular and elements >= 2 * batch - 1:
            return cls(repeated, elements, batch, apply)
        whole = apply(repeated) if count < 0 and batch == 1 else dataset
        return cls(whole, _length(whole), 1, lambda batches: batches)

    def batches(self, number: int) -> int | None:
        """The number of batches that begin in this pass."""
        return None if self.elements is None else self._before(number + 1) - self._before(number)

    def own_batches(self, number: int) -> int:
        """The number of batches that this pass alone contains. The number of its elements is known."""
        return ((self.elements or 0) - self._skipped(number)) // self.batch

    def is_read_whole(self, number: int) -> bool:
        """Whether the order of later passes depends on all of this one.

        The first pass fills a cache, whose order is that of a `shuffle()` before it. A pass that contains several ones
        of a dataset, by a `repeat()` with an end, shuffles as often.
        """
        kinds = {type(node).__name__.strip("_") for node in _nodes(self.dataset)}
        return "RepeatDataset" in kinds or (number == 0 and "CacheDataset" in kinds)

    def earlier(self, number: int) -> Any:
        """What a start reads of an earlier pass: the element of `from_pass` with its first batch, or all elements."""
        if self.is_read_whole(number):
            return self.whole(number)
        return self.apply(self._rest(number).take(self.batch)).enumerate().take(1).map(lambda _, batch: (True, batch))

    def whole(self, number: int) -> Any:
        """The elements of `from_pass` of this pass alone. The last batch can have fewer elements."""
        return self.apply(self._rest(number)).enumerate().map(lambda at, batch: (at == 0, batch))

    def from_pass(self, number: int) -> Any:
        """Elements (whether the batch is the first that begins in a pass, batch), from the first one of this pass."""
        if self.elements is None:
            # This dataset ends after a pass without batches, such as that of a generator that is exhausted.
            return self.dataset.enumerate().repeat().map(lambda at, batch: (at == 0, batch))
        elements, size = tf.constant(self.elements, tf.int64), tf.constant(self.batch, tf.int64)
        batches = self.apply(self._rest(number).concatenate(self.dataset.repeat()))
        return batches.enumerate(self._before(number)).map(lambda at, batch: (at * size % elements < size, batch))

    def _before(self, number: int) -> int:
        """The number of batches that begin before this pass."""
        return -(-number * (self.elements or 0) // self.batch)

    def _skipped(self, number: int) -> int:
        """The number of elements of a pass that the last batch of the one before contains."""
        return self._before(number) * self.batch - number * (self.elements or 0)

    def _rest(self, number: int) -> Any:
        """The elements of a pass from its first batch on."""
        skipped = self._skipped(number)
        return self.dataset.skip(skipped) if skipped else self.dataset


def _operation(node: Any) -> Apply | None:
    """The last operation of a dataset, if it makes a batch from each one or from a fixed number of elements."""
    kind = type(node).__name__
    calls = {}
    if kind in ("_ParallelMapDataset", "_ParallelBatchDataset"):
        calls = {
            "num_parallel_calls": int(node._num_parallel_calls),
            "deterministic": DETERMINISTIC[node._deterministic],
        }
    match kind:
        case "_OptionsDataset":
            return lambda dataset: dataset.with_options(node.options())
        case "_PrefetchDataset":
            return lambda dataset: dataset.prefetch(int(node._buffer_size))
        case "_MapDataset" | "_ParallelMapDataset":
            return lambda dataset: dataset.map(node._map_func._func, **calls)
        case "_BatchDataset" | "_ParallelBatchDataset":
            return lambda dataset: dataset.batch(int(node._batch_size), bool(node._drop_remainder), **calls)
        case "_PaddedBatchDataset":
            return lambda dataset: dataset.padded_batch(
                int(node._batch_size), node._padded_shapes, node._padding_values, bool(node._drop_remainder)
            )
    return None


def _repeats(node: Any) -> int:
    """How often the dataset repeats its input: a negative number without end, 0 if it is no repetition."""
    return int(node._count) if type(node).__name__ == "_RepeatDataset" else 0


def _nodes(dataset: Any) -> Iterator[Any]:
    """The dataset and all those of which it is made."""
    yield dataset
    for each in dataset._inputs():
        yield from _nodes(each)


def _length(dataset: Any) -> int | None:
    length = int(dataset.cardinality())
    return length if length > 0 else None
