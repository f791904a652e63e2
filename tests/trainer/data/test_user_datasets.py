"""tf.data.Datasets of the user: the order of their examples on any number of ranks, and checks."""

from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import data
from horovodjob_trainer.data.caching import memory
from horovodjob_trainer.run.pipeline import batch_preparation, evaluation_batches, training_batches

MODULE = """
import itertools
import numpy as np
import tensorflow as tf

NUMBERS = tf.data.Dataset.range(40)

def example(number):
    tokens = tf.fill((3,), tf.cast(number, tf.int32))
    return {"tokens": tokens, "name": tf.strings.as_string(number)}, number, tf.cast(number, tf.float32) / 2

def by_index():
    return NUMBERS.map(example)

def of_unknown_length():
    return NUMBERS.map(example).filter(lambda *_: True)

def pair():
    return NUMBERS.take(7).map(example), NUMBERS.take(3).map(example)

def infinite():
    return by_index().repeat()

def endless_generator():
    numbers = lambda: ((number, number) for number in itertools.count())
    return tf.data.Dataset.from_generator(numbers, output_signature=(tf.TensorSpec((), tf.int64),) * 2)

def without_labels():
    return NUMBERS

def batched():
    return by_index().batch(8)

def ragged():
    return NUMBERS.map(lambda number: (tf.RaggedTensor.from_row_lengths([1], [1]), number))

def empty():
    return by_index().take(0)

def one():
    return by_index().take(1)

def different_parts():
    return NUMBERS.map(example), NUMBERS.map(lambda number: (number, number))

def lines(text):
    from pathlib import Path
    Path("table.csv").write_bytes(text.encode())
    table = tf.data.experimental.CsvDataset("table.csv", [tf.float32, tf.int64], header=True)
    return table.map(lambda value, label: ([value], label))

def short_line():
    return lines("value,label\\n1,0\\n2\\n")

def no_lines():
    return lines("")

def random():
    return NUMBERS.map(lambda number: (tf.random.uniform((3,)), number))
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tf_data.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)


def load(function: str, **settings: Any) -> data.Dataset:
    return data.load_dataset(data.Request(dataset=f"tf_data:{function}", **settings))


def labels(source: data.Source, count: int, **settings: Any) -> list[list[int]]:
    """The labels of the first batches, whose examples and weights are checked."""
    steps = data.Steps(**({"batch": 4, "seed": 1} | settings))
    prepare = batch_preparation(source, batch=steps.batch)
    found = []
    for x, y, weights in islice(training_batches(source, steps, prepare=prepare), count):
        assert x["tokens"].shape == (steps.batch, 3)
        np.testing.assert_array_equal(x["tokens"], np.repeat(y.numpy()[:, None], 3, axis=1))
        assert [int(name) for name in x["name"].numpy()] == y.numpy().tolist()
        np.testing.assert_array_equal(weights, y.numpy() / 2)
        found.append(y.numpy().tolist())
    return found


def labels_of_test_part(found: data.Dataset, **ranks: int) -> list[int]:
    return [int(label) for *_, batch, _ in evaluation_batches(found.test, batch=1, **ranks) for label in batch]


@pytest.mark.parametrize(
    ("function", "cache"), [("by_index", "none"), ("by_index", "auto"), ("of_unknown_length", "auto")]
)
def test_ranks_share_one_shuffled_sequence_that_continues_at_any_position(function: str, cache: str) -> None:
    found = load(function, cache=cache, validation_share=0.1)
    train = found.train
    assert (train.samples, found.test.samples) == (36, 4)
    alone = labels(train, 18)
    epochs = [sorted(chain.from_iterable(batches)) for batches in (alone[:9], alone[9:])]
    assert epochs == [sorted(set(range(40)) - set(labels_of_test_part(found)))] * 2
    assert alone[:9] != alone[9:]

    ranks = [labels(train, 9, rank=rank, size=2) for rank in range(2)]
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == alone
    # After four steps of two ranks, the job continues with three.
    ranks = [labels(train, 3, rank=rank, size=3, position=32) for rank in range(3)]
    assert [batch for step in zip(*ranks, strict=True) for batch in step] == alone[8:17]


def test_the_order_and_the_fingerprint_do_not_depend_on_where_the_examples_are() -> None:
    in_memory, by_index = load("by_index"), load("by_index", cache="none")
    assert labels(in_memory.train, 5) == labels(by_index.train, 5)
    assert in_memory.fingerprint == by_index.fingerprint
    assert load("of_unknown_length").train.fingerprint == in_memory.train.fingerprint
    assert load("by_index", seed=2).fingerprint != in_memory.fingerprint
    assert load("random").fingerprint != load("random").fingerprint


def test_a_function_can_return_a_test_part_of_its_own() -> None:
    found = load("pair")
    assert (found.train.samples, found.test.samples) == (7, 3)
    assert labels_of_test_part(found, rank=1, size=2) == [1]


@pytest.mark.parametrize(
    ("function", "what"),
    [
        ("infinite", "the dataset is infinite, so an epoch has no end; remove .repeat(), or add .take(NUMBER)"),
        ("without_labels", "without a label; map each to (example, label)"),
        ("batched", "remove .batch(), because the trainer makes the batches, and pad examples"),
        ("ragged", "contains a RaggedTensorSpec; use dense tensors"),
        ("empty", "the dataset has no examples"),
        ("one", "one example cannot be split"),
        ("short_line", "an example from number 0 on cannot be read: Expect 2 fields but have 1 in record; correct"),
        ("no_lines", "cannot be read: Can't read header of file; correct what the function reads"),
        ("different_parts", "both need the same structure, types and shapes"),
    ],
)
def test_a_dataset_that_cannot_be_trained_on_is_rejected(problem: Any, function: str, what: str) -> None:
    assert what in problem(dataset=f"tf_data:{function}", names=f"tf_data:{function}")


def test_a_dataset_that_needs_more_memory_than_there_is_is_read_by_index_or_rejected(
    problem: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "budget_bytes", lambda ranks: 1500)
    assert labels(load("by_index").train, 2)
    assert "the memory budget of this process is 0.0 MB" in problem(dataset="tf_data:by_index", cache="memory")
    endless = problem(dataset="tf_data:endless_generator")
    assert "the length of the dataset is unknown, and its first 256 examples exceed" in endless
