"""Losses, metrics and statistics of two ranks are those of one process, whatever counts on each rank."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "programs" / "counted_steps.py"
EXACT = ("masked", "ignored class", "both", "weights", "weights and mask", "accumulated")
Found = tuple[dict[str, Any], dict[str, Any], str]


@pytest.fixture(scope="module")
def found(run: Callable[..., Any], preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The results of two ranks and of one process, and what the ranks print."""
    directory = tmp_path_factory.mktemp("counted")
    two, one = (run(ranks, [*preloaded_python, str(PROGRAM), str(directory)]) for ranks in (2, 1))
    assert (two.code, one.code) == (0, 0), two.stderr + one.stderr
    read = [json.loads((directory / f"counted-{ranks}.json").read_text()) for ranks in (2, 1)]
    return read[0], read[1], two.stderr


@pytest.mark.parametrize("form", EXACT)
def test_a_distributed_loss_trains_as_one_process(found: Found, form: str) -> None:
    several, one, _ = found
    np.testing.assert_allclose(several[form], one[form], rtol=1e-5, atol=1e-6)


def test_the_average_of_the_means_of_the_ranks_is_another_loss(found: Found) -> None:
    several, one, _ = found
    assert not np.allclose(several["not exact"], one["not exact"], rtol=1e-3, atol=1e-4)


def test_a_distributed_loss_reports_the_loss_of_one_process_for_batches_of_different_sizes(found: Found) -> None:
    several, one, _ = found
    assert several["reported"] == pytest.approx(one["reported"], rel=1e-5)


@pytest.mark.parametrize("kind", ["metrics", "masked metrics"])
def test_metrics_of_training_validation_and_evaluation_are_those_of_all_examples(found: Found, kind: str) -> None:
    several, one, _ = found
    assert several[kind].keys() == one[kind].keys()
    for name, value in one[kind].items():
        # A masked loss is the mean of the means of batches, which are others in one process. Keras reads the variable
        # of the training's hits after the validation.
        if not (name.endswith("my_accuracy") or name == "hits" or (kind == "masked metrics" and name.endswith("loss"))):
            assert several[kind][name] == pytest.approx(value, rel=1e-5), name


def test_a_metric_with_an_unknown_state_is_averaged_and_named(found: Found) -> None:
    _, _, printed = found
    assert printed.count("the metric my_accuracy is the average of the ranks, weighted by their examples") == 1
    assert printed.count("Horovod: the metric ") == 1


def test_synchronized_normalization_keeps_the_variance_of_data_with_a_large_mean(found: Found) -> None:
    for each in found[:2]:
        np.testing.assert_allclose(each["variance"], each["expected variance"], rtol=2e-3)


def test_a_distributed_loss_is_saved_as_one_of_keras_and_refuses_what_is_no_mean(found: Found) -> None:
    _, one, _ = found
    assert one["errors"] == [
        "DistributedLoss needs an object such as keras.losses.MeanSquaredError(), not 'mse'",
        "DistributedLoss needs a loss that is a mean, and its reduction is 'sum'",
    ]
