"""The batches of a script continue in the order of the run, or the start finds that they do not."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import DataError
from horovodjob_trainer.run.scripts import batches as script_batches
from horovodjob_trainer.run.scripts.batches import Examples, TensorFlowBatches

EXAMPLES, EPOCHS = 23, 4
ALL_SECONDS = 1e9  # for a whole pass, however busy the machine is
Build = Callable[[Callable[[Any], Any]], Any]


@pytest.fixture(autouse=True)
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hvd, "rank", lambda: 0)
    monkeypatch.setattr(hvd, "size", lambda: 1)
    monkeypatch.setattr(script_batches, "AGAIN_SECONDS", ALL_SECONDS)


def numbers(examples: int = EXAMPLES) -> Any:
    return tf.data.Dataset.range(examples)


def generated(read: Callable[[Any], Any]) -> Any:
    def generate() -> Iterator[int]:
        yield from range(EXAMPLES)

    return tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec((), tf.int64)).map(read)


def interleaved(read: Callable[[Any], Any]) -> Any:
    return numbers().map(read).interleave(lambda number: tf.data.Dataset.from_tensors(number), num_parallel_calls=2)


# Each with the number of steps of an epoch, and the most examples that a start in the last of four epochs reads.
# Without a limit, it reads all epochs: nobody knows where a pass begins.
PIPELINES: dict[str, tuple[Build, int | None, int | None]] = {
    "finite": (lambda read: numbers().map(read).shuffle(7).batch(5).prefetch(2), None, 80),
    "repeat, prefetch": (lambda read: numbers().map(read).shuffle(7).batch(5).repeat().prefetch(3), 4, 80),
    "repeat, map, batch": (
        lambda read: numbers().shuffle(23).map(read).repeat().map(lambda x: x, 2).batch(5, True).prefetch(-1), 5, 100,
    ),
    "repeat, padded": (lambda read: numbers().map(read).shuffle(7).repeat().padded_batch(5, []).prefetch(3), 4, 80),
    "shuffle, cache, repeat": (lambda read: numbers().map(read).shuffle(7).cache().repeat().batch(5), 4, 23),
    "repeat twice, batch": (lambda read: numbers().map(read).shuffle(7).repeat(2).batch(5), None, None),
    "parallel interleave": (lambda read: interleaved(read).batch(5), 5, 80),
    "generator": (lambda read: generated(read).shuffle(7).batch(5), 4, 80),
    "generator, repeat": (lambda read: generated(read).shuffle(7).batch(5).repeat(), 7, 80),
    "repeat, shuffle": (lambda read: numbers().map(read).repeat().shuffle(40).batch(5), 5, None),
}  # fmt: skip


def started(name: str, state: RunState | None = None, epochs: int = EPOCHS) -> tuple[Any, Any, list[int], RunState]:
    """A start with these batches: the batches, their iterator, the examples that it has read, and its state."""
    build, steps, _ = PIPELINES[name]
    seen: list[int] = []

    def record(number: Any) -> Any:
        seen.append(int(number))
        return number

    def read(value: Any) -> Any:
        value = tf.numpy_function(record, [value], tf.int64)
        value.set_shape(())
        return value

    tf.random.set_seed(3)
    batches = TensorFlowBatches(build(read), steps)
    state = state or RunState(epochs, batches.epoch_examples, 1)
    return batches, batches.iterator(state), seen, state


@pytest.mark.parametrize(
    ("name", "device"), [(name, "/CPU:0" if name == "repeat, prefetch" else None) for name in PIPELINES]
)
def test_a_start_continues_with_the_batches_of_the_run_and_reads_few_again(
    name: str, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a device, the next batches are prefetched to it: here the processor stands for a GPU."""
    devices = [] if device is None else [SimpleNamespace(name=device)]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: devices)
    batches, iterator, _, state = started(name)
    whole, orders = [], []
    for _ in range(state.total):
        whole.append(next(iterator).numpy().tolist())
        orders.append(batches.order(len(whole)))
    with pytest.raises(StopIteration):
        next(iterator)
    steps = batches.epoch_examples
    for position in (2 * steps, 3 * steps + 2):
        stopped = RunState(EPOCHS, steps, 1, position=position, step=position, order=[orders[position - 1]])
        again, iterator, seen, _ = started(name, stopped)
        assert [each.numpy().tolist() for each in iterator] == whole[position:], position
        assert again.problem is None
        assert again.order(state.total) == orders[-1]
    most = PIPELINES[name][2]
    assert most is None or len(seen) <= most + ("cache" not in name) * (state.total - position) * 5


def test_each_example_is_in_each_pass_of_a_generator_or_a_repeated_dataset() -> None:
    for name in ("generator", "repeat, padded", "repeat, prefetch"):
        values = np.concatenate([each.numpy() for each in started(name)[1]])[: 3 * EXAMPLES]
        assert [sorted(part) for part in values.reshape(3, EXAMPLES).tolist()] == [[*range(EXAMPLES)]] * 3


def test_a_dataset_that_has_become_shorter_ends_with_a_sentence() -> None:
    batches, iterator, _, _ = started("generator")
    [next(iterator) for _ in range(4)]
    shorter = TensorFlowBatches(tf.data.Dataset.range(0).filter(lambda _: True).batch(5), 4)
    with pytest.raises(DataError, match="the dataset ends before step 4, after which the run was interrupted"):
        shorter.iterator(RunState(EPOCHS, 4, 1, position=4, step=4, order=[batches.order(4)]))


VALUES: dict[str, Any] = {
    "numbers": np.arange(64),
    "strings": np.array([f"file-{number}" for number in range(64)]),
    "halves": tf.cast(np.arange(64), tf.bfloat16),
    "ragged": tf.ragged.range(np.arange(64)),
    "structure": {"first": (np.arange(64), np.zeros(64)), "second": np.arange(64, 128)},
}


def order_of(dataset: Any, steps: int) -> list[int]:
    batches = TensorFlowBatches(dataset, None)
    iterator = batches.iterator(RunState(2, batches.epoch_examples, 1))
    for _ in range(steps):
        next(iterator)
    return batches.order(steps)


@pytest.mark.parametrize(("name", "position"), [(name, 4 if name == "numbers" else 3) for name in VALUES])
def test_another_order_of_any_type_is_found_within_and_after_an_epoch(name: str, position: int) -> None:
    rows = tf.data.Dataset.from_tensor_slices((np.zeros(64), VALUES[name]))

    def shuffled(seed: int) -> Any:
        return rows.shuffle(64, seed).batch(16)

    state = RunState(2, 4, 1, position=position, step=position, order=[order_of(shuffled(1), position)])
    for seed, is_problem in ((1, False), (2, True)):
        batches = TensorFlowBatches(shuffled(seed), None)
        batches.iterator(state)
        assert (batches.problem is not None) == is_problem


@pytest.mark.parametrize(
    ("row", "seconds", "is_found"), [(5, ALL_SECONDS, True), (150, ALL_SECONDS, True), (150, 0.0, False)]
)
def test_rows_that_change_their_places_in_the_last_pass_are_found_in_the_time_for_it(
    row: int, seconds: float, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a pass, whose batches are read again only to compare them."""
    monkeypatch.setattr(script_batches, "AGAIN_SECONDS", seconds)
    values = np.arange(160)
    exchanged = values.copy()
    exchanged[[row, 20]] = exchanged[[20, row]]
    datasets = [tf.data.Dataset.from_tensor_slices(each).batch(16) for each in (values, exchanged)]
    state = RunState(2, 10, 1, position=10, step=10, order=[order_of(datasets[0], 10)])
    for dataset, is_problem in zip(datasets, (False, is_found), strict=True):
        again = TensorFlowBatches(dataset, None)
        iterator = again.iterator(state)
        assert (again.problem is not None) == is_problem
        assert next(iterator).numpy()[0] == 0
        assert again.order(10)[:2] == [1, 10]
        assert again.order(11)[:2] == [2, 1]


def test_a_checkpoint_of_an_earlier_release_has_no_fingerprints_of_parts() -> None:
    order = order_of(numbers().batch(5), 5)
    for known in (order, order[:4], [*order[:3], 1], [*order[:4], 1]):
        again = TensorFlowBatches(numbers().batch(5), None)
        again.iterator(RunState(2, 5, 1, position=5, step=5, order=[known]))
        assert (again.problem is None) == (known[4:] != [1] and known[3] != 1)


def test_the_arrays_of_examples_are_compared_with_those_of_the_run() -> None:
    files = np.array([f"file-{number}" for number in range(64)])
    labels = np.arange(64)
    order = Examples((files, labels), 5).order(10)
    state = RunState(2, 64, 1, position=10, step=2, order=[order])
    for given, is_problem in (((files, labels), False), ((files[::-1], labels), True), ((files, labels + 0.5), True)):
        examples = Examples(given, 5)
        examples.iterator(state)
        assert (examples.problem is not None) == is_problem
