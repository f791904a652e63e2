"""Sampling: each row once per pass, divided among the ranks, a function of seed and position."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horovodjob_trainer.data import step_rows
from horovodjob_trainer.data.order import split_rows


@given(samples=st.integers(1, 90), size=st.integers(1, 5), batch=st.integers(1, 20), seed=st.integers(0, 9))
def test_in_each_pass_every_row_is_read_once_by_one_rank(samples: int, size: Any, batch: int, seed: int) -> None:
    steps = range(-(-2 * samples // (size * batch)))
    read = [
        step_rows(step * size * batch, samples=samples, batch=batch, rank=rank, size=size, seed=seed)
        for step in steps
        for rank in range(size)
    ]
    sequence = np.concatenate(read)
    assert sorted(sequence[:samples]) == list(range(samples))
    assert sorted(sequence[samples : 2 * samples]) == list(range(samples))


@given(size=st.integers(1, 6), position=st.integers(0, 500))
def test_ranks_together_read_what_one_rank_with_all_their_images_reads(size: Any, position: int) -> None:
    parts = [step_rows(position, samples=37, batch=4, rank=rank, size=size, seed=1) for rank in range(size)]
    whole = step_rows(position, samples=37, batch=4 * size, rank=0, size=1, seed=1)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_passes_and_seeds_have_different_orders() -> None:
    def order(number: int, seed: int) -> list[int]:
        return list(step_rows(number * 50, samples=50, batch=50, rank=0, size=1, seed=seed))

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(1, 1)
    assert order(0, 1) != order(0, 2)


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=60),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
    by_class=st.booleans(),
)
def test_a_split_has_two_parts_that_share_no_row(labels: Any, share: float, seed: int, by_class: bool) -> None:
    classes = np.array(labels)
    train, test = split_rows(len(labels), share=share, seed=seed, labels=classes if by_class else None)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert len(train)
    assert len(test)
    again = split_rows(len(labels), share=share, seed=seed, labels=classes if by_class else None)
    np.testing.assert_array_equal(test, again[1])


def test_each_class_gives_its_share_to_the_test() -> None:
    labels = np.repeat([0, 1], [80, 20])
    _, test = split_rows(100, share=0.25, seed=3, labels=labels)
    assert np.bincount(labels[test]).tolist() == [20, 5]
