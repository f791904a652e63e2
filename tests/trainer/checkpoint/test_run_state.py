"""Epochs: passes of all ranks together over the training data."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovodjob_trainer.checkpoint.run_state import RunState

CIFAR10, BATCH = 50_000, 32


def steps_of_epochs(state: RunState, job_batch: int) -> list[int]:
    """The number of steps of each epoch in a run to its end, as its log lines have it."""
    epochs = []
    while state.position < state.total:
        end = (state.epoch + 1) * state.epoch_examples
        announced, first = state.steps_in_epoch(job_batch), state.step
        while state.position < end:
            assert (state.steps_in_epoch(job_batch), state.step_in_epoch(job_batch)) == (announced, state.step - first)
            state.position, state.step = state.position + job_batch, state.step + 1
        assert state.step - first == announced == state.steps_in_last_epoch(job_batch)
        epochs.append(announced)
    return epochs


@pytest.mark.parametrize(("ranks", "first_epochs"), [(1, [1563, 1562]), (4, [391, 391]), (512, [4, 3, 3, 3, 3])])
def test_an_epoch_is_one_pass_on_any_number_of_ranks(ranks: Any, first_epochs: list[int]) -> None:
    epochs = steps_of_epochs(RunState(epochs=100, epoch_examples=CIFAR10, first_size=ranks), ranks * BATCH)
    assert epochs[: len(first_epochs)] == first_epochs
    assert len(epochs) == 100
    assert sum(epochs) == math.ceil(100 * CIFAR10 / (ranks * BATCH))


@given(epochs=st.integers(1, 9), samples=st.integers(1, 200), job_batch=st.integers(1, 300))
def test_a_run_ends_in_the_step_that_completes_its_passes(epochs: int, samples: Any, job_batch: int) -> None:
    state = RunState(epochs=epochs, epoch_examples=samples, first_size=1)
    steps = steps_of_epochs(state, job_batch)
    assert sum(steps) == math.ceil(epochs * samples / job_batch)
    assert (state.epoch, state.step_in_epoch(job_batch)) == (epochs, 0)


def test_the_state_of_an_earlier_release_has_the_streams_of_its_first_start() -> None:
    stored = RunState(epochs=2, epoch_examples=10, first_size=3, position=12, streams=2).to_json()
    assert RunState.from_json(stored).streams == 2
    del stored["streams"]
    assert RunState.from_json(stored).streams == 3
