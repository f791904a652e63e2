"""Ranks train one model: their weights are equal, and they are those of one process with the whole batch."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Found = Mapping[str, np.ndarray[Any, Any]]
TRAININGS = ("without dropout", "with dropout", "momentum", "clipping", "adam", "warm-up")
PROGRAM = Path(__file__).parent / "programs" / "train_steps.py"


@pytest.fixture(scope="session")
def outcome(run: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], list[Found]]:
    """What each of so many ranks ended with at so many images per step."""

    def found(ranks: int, batch: int) -> list[Found]:
        directory = tmp_path_factory.mktemp("steps")
        ended = run(ranks, [sys.executable, str(PROGRAM), str(directory), str(batch)])
        assert ended.code == 0, ended.stderr
        return [dict(np.load(directory / f"{rank}-of-{ranks}.npz")) for rank in range(ranks)]

    return found


@pytest.fixture(scope="session")
def two_ranks(outcome: Callable[[int, int], list[Found]]) -> list[Found]:
    return outcome(2, 16)


@pytest.fixture(scope="session")
def one_rank(outcome: Callable[[int, int], list[Found]]) -> Found:
    return outcome(1, 32)[0]


@pytest.mark.parametrize("training", TRAININGS)
def test_ranks_that_start_apart_end_with_the_same_weights_bit_for_bit(two_ranks: Any, training: Any) -> None:
    first, second = two_ranks
    start, weights, optimizer = (f"{training} {what}" for what in ("start", "weights", "optimizer"))
    assert np.abs(first[start] - second[start]).max() > 0.01
    assert np.abs(first[start] - first[weights]).max() > 1e-4
    np.testing.assert_array_equal(first[weights], second[weights])
    np.testing.assert_array_equal(first[optimizer], second[optimizer])


@pytest.mark.parametrize("training", ["without dropout", "momentum", "clipping", "adam"])
def test_two_ranks_train_like_one_with_twice_the_batch(two_ranks: Any, one_rank: Any, training: Any) -> None:
    start, one, two = (
        found[f"{training} {what}"]
        for found, what in ((one_rank, "start"), (one_rank, "weights"), (two_ranks[0], "weights"))
    )
    assert np.linalg.norm(two - one) < 1e-4 * np.linalg.norm(one - start)


def test_the_metrics_of_an_epoch_are_averaged_over_the_ranks(two_ranks: Any) -> None:
    own = [found["own metrics"] for found in two_ranks]
    assert not np.array_equal(*own)
    for found in two_ranks:
        np.testing.assert_allclose(found["averaged metrics"], np.mean(own, axis=0), rtol=1e-6)


def test_every_rank_knows_the_result_over_the_whole_test_set(two_ranks: Any) -> None:
    np.testing.assert_array_equal(two_ranks[0]["evaluation"], two_ranks[1]["evaluation"])
    np.testing.assert_allclose(two_ranks[0]["evaluation"], two_ranks[0]["evaluation alone"], rtol=1e-5)


def test_the_warm_up_leads_from_one_ranks_learning_rate_to_the_jobs(two_ranks: Any, one_rank: Any) -> None:
    rates = two_ranks[0]["warm-up rates"]
    np.testing.assert_allclose(rates[:16], 0.01 + 0.01 * np.arange(1, 17) / 16, rtol=1e-6)
    np.testing.assert_allclose(rates[16:], 0.02, rtol=1e-6)
    np.testing.assert_allclose(one_rank["warm-up rates"], 0.02, rtol=1e-6)
