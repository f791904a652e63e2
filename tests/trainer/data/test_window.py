"""The windowed order: each row once per pass, sequential reads, the same sequence after a resume with other ranks."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.data.order import Window, WindowOrder

SHARDS = st.lists(st.integers(0, 30), min_size=1, max_size=9).filter(any)


def order(window: Window, *, size: int, batch: int = 4, position: int = 0, streams: int = 0) -> WindowOrder:
    return WindowOrder(window, seed=3, batch=batch, size=size, position=position, streams=streams or size)


@given(shards=SHARDS, examples=st.integers(1, 40), size=st.integers(1, 5), batch=st.integers(1, 7))
def test_each_pass_has_every_row_once(shards: Any, examples: int, size: int, batch: int) -> None:
    samples = sum(shards)
    rows = order(Window(tuple(shards), examples), size=size, batch=batch).rows(np.arange(3 * samples))
    for number in range(3):
        assert sorted(rows[number * samples : (number + 1) * samples]) == list(range(samples))


@given(
    shards=SHARDS,
    examples=st.integers(1, 40),
    before=st.integers(1, 5),
    after=st.integers(1, 5),
    steps=st.integers(1, 9),
)
def test_a_run_that_resumes_with_other_ranks_reads_the_rest_of_the_pass(
    shards: Any, examples: int, before: int, after: int, steps: int
) -> None:
    window, batch, samples = Window(tuple(shards), examples), 4, sum(shards)
    state = RunState(epochs=9, epoch_examples=samples, first_size=before)
    for _ in range(steps):
        state.advance(batch * before, before)
    first = order(window, size=before).rows(np.arange(state.position))
    resumed = order(window, size=after, position=state.position, streams=state.streams)
    end = 2 * samples + state.position
    rows = np.concatenate([first, resumed.rows(np.arange(state.position, end))])
    for number in range(end // samples):
        assert sorted(rows[number * samples : (number + 1) * samples]) == list(range(samples))
    while state.position < end:  # the state always describes the sequence that the resumed run reads
        state.advance(batch * after, after)
        again = order(window, size=after, position=state.position, streams=state.streams)
        ahead = np.arange(state.position, state.position + 20)
        np.testing.assert_array_equal(again.rows(ahead), resumed.rows(ahead))


def windows_of_rank(window: Window, rank: int, *, size: int, batch: int, first_step: int = 0) -> list[Any]:
    """The rows of a rank in each of its windows of the first pass, from this step."""
    found, position, end = [], (first_step * size + rank) * batch, sum(window.shards)
    sequence = order(window, size=size, batch=batch)
    while position < end:
        steps = sequence.steps_to_window_end(position)
        firsts = position + np.arange(steps) * batch * size
        found.append(sequence.rows(firsts[:, None] + np.arange(batch)).reshape(-1))
        position += steps * batch * size
    return found


def test_a_rank_reads_its_share_of_the_files_in_long_runs() -> None:
    window, size, batch = Window((500,) * 64, 320), 4, 10
    for rank in range(size):
        windows = windows_of_rank(window, rank, size=size, batch=batch)
        assert {len(rows) for rows in windows} == {320}
        files = [set(rows // 500) for rows in windows]
        assert len(set.union(*files)) <= 64 / size + 1
        for rows in windows:
            runs = 1 + np.count_nonzero(np.diff(np.sort(rows)) != 1)
            assert runs <= 32 + 2
            assert np.abs(np.diff(rows)).mean() > 100  # shuffled
        resumed = windows_of_rank(window, rank, size=size, batch=batch, first_step=40)
        assert [len(rows) for rows in resumed[:3]] == [240, 320, 320]
        np.testing.assert_array_equal(resumed[1], windows[2])
        starts = [sorted(rows)[0] for rows in windows]
        assert any(first > second for first, second in pairwise(starts))


def test_passes_and_seeds_have_different_orders_and_different_files_for_a_rank() -> None:
    window = Window((50,) * 8, 40)
    first, second = np.split(order(window, size=2).rows(np.arange(800)), 2)
    other = WindowOrder(window, seed=4, batch=4, size=2, position=0, streams=2).rows(np.arange(400))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    own = [set(rows.reshape(-1, 2, 4)[:, 0].reshape(-1) // 50) for rows in (first, second)]
    assert own[0] != own[1]
