"""Every optimizer of Keras on three ranks and every setting on two: equal bits, and the weights of one process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"

# Tolerated difference from a single process, relative to the change of the weights by the training. Sums in a
# different order differ in the last bits of float32, and 16-bit numbers have fewer bits.
CLOSE = 2e-5
COARSE = {
    "fp16 compression": 0.01,
    "bf16 compression": 0.02,
    "mixed_bfloat16": 0.02,
    "bfloat16": 0.05,
    "mixed_float16": 0.01,
    "mixed_float16, compressed": 0.01,
    "one rank overflows": 0.01,
    "one rank overflows while accumulating": 0.01,
}


@pytest.fixture(scope="module", params=[2, 3])
def ranks(
    request: pytest.FixtureRequest,
    run: Callable[..., Any],
    preloaded_python: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """The results of each rank for each kind of training. With three ranks, sums and averages are rounded."""
    size = request.param
    directory = tmp_path_factory.mktemp("optimizers")
    ended = run(
        size,
        [*preloaded_python, str(PROGRAMS / "optimizer_steps.py"), str(directory)],
        {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"},
    )
    assert ended.code == 0, ended.stderr
    return [json.loads((directory / f"{rank}-of-{size}.json").read_text()) for rank in range(size)]


@pytest.mark.parametrize("ranks", [3], indirect=True)
def test_every_optimizer_that_keras_ships_was_trained_with(ranks: Any) -> None:
    known = {"Adam", "AdamW", "Adafactor", "LossScaleOptimizer", "MultiOptimizer", "Muon", "RMSprop", "SGD"}
    assert known < set(ranks[0]["ways"])


def test_all_ranks_end_with_the_same_bits(ranks: Any) -> None:
    for way, first in ranks[0]["ways"].items():
        for other in ranks[1 : first["ranks"]]:
            assert other["ways"][way]["weights"] == first["weights"], way
            assert other["ways"][way]["slots"] == first["slots"], way


def test_all_ranks_end_with_the_weights_of_one_process_with_the_whole_batches(ranks: Any) -> None:
    compared = {name: way for rank in ranks for name, way in rank["ways"].items() if way.get("moved")}
    assert set(compared) == set(ranks[0]["ways"])
    gaps = {name: way["difference"] for name, way in compared.items()}
    assert not {name: gap for name, gap in gaps.items() if not gap < COARSE.get(name, CLOSE)}


def test_bfloat16_is_first_added_within_each_node_if_it_has_several_ranks(
    run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    ended = run(4, [*preloaded_python, str(PROGRAMS / "node_sums.py")])
    assert ended.code == 0, ended.stderr
