"""Kinds of models and optimizers that scripts use, on two ranks: synchronized, or with an error or a warning."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"
LAYERS, STEPS = 6, 3  # of overlapping_exchange in model_steps.py

Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(run: Callable[..., Any], preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The results of each rank."""
    directory = tmp_path_factory.mktemp("models")
    program = [*preloaded_python, str(PROGRAMS / "model_steps.py"), str(directory)]
    ended = run(2, program, {"HOROVOD_TIMELINE": "DYNAMIC"})
    assert ended.code == 0, ended.stderr
    found = [json.loads((directory / f"found-{rank}.json").read_text()) for rank in range(2)]
    found[0]["timeline"] = (directory / "timeline.json").read_text()
    return found


@pytest.mark.parametrize(
    "model",
    ["late_model", "model_ahead", "model_with_tape", "sequential_without_input", "two_optimizers", "bfloat16_words"],
)
def test_ranks_end_with_equal_weights_and_slots(found: Found, model: str) -> None:
    assert found[0][model] == found[1][model]
    assert any(found[0][model])


def test_a_copy_of_a_distributed_optimizer_is_distributed(found: Found) -> None:
    for rank in range(2):
        assert found[rank]["copies"] == dict.fromkeys(found[rank]["copies"], -2.0)
    assert len(found[0]["copies"]) > 10


def test_a_copy_that_cannot_find_its_local_layers_is_refused(found: Found) -> None:
    assert "call hvd.PartialDistributedOptimizer(optimizer, local_layers=...)" in found[0]["local_layers"]["copy"]


def test_local_layers_can_have_different_shapes(found: Found) -> None:
    first, second = (each["local_layers"] for each in found)
    assert (first["table"], second["table"]) == ([9, 4], [10, 4])
    assert (first["slot"], second["slot"]) == ([9, 4], [10, 4])
    assert first["shared"] == second["shared"]


def test_a_tape_separates_the_gradients_of_local_and_other_sources(found: Found) -> None:
    first, second = (each["local_layers"] for each in found)
    assert first["local sources"] == [True]
    assert first["shared gradients"] == second["shared gradients"]


def test_variables_are_broadcast_except_the_states_of_seed_generators(found: Found) -> None:
    first, second = (each["variables_of_all_types"] for each in found)
    assert first.pop("seeds") != second.pop("seeds")
    assert first == second
    assert first["types"] == [2, 2, 2, 1, 2, 2, 2, 2]
    assert first["uint32"] == [1] * 7
    assert first["allgather"] == [0, 1]


def test_a_frozen_layer_is_not_exchanged_and_a_group_can_have_several_types(found: Found) -> None:
    first, second = (each["frozen_layer_and_mixed_types"] for each in found)
    assert (first["frozen"], second["frozen"]) == ([0] * 6, [1] * 6)
    assert first["shared"] == second["shared"]
    assert first["trained"]


def begins(timeline: str, activity: str, bucket: int) -> list[int]:
    """The times at which an activity of the first tensor of a bucket begins, one for each step."""
    # Horovod ends the file only when the process ends, so the last bracket can be missing.
    events = json.loads(timeline.strip().rstrip("],") + "]")
    (tensor,) = (
        each["pid"] for each in events if "overlap_HorovodAllreduce_" in (name := each.get("args", {}).get("name", ""))
        and name.endswith(f"_{bucket}_1of2")
    )  # fmt: skip
    return [each["ts"] for each in events if (each["pid"], each.get("name")) == (tensor, activity)]


def test_the_exchange_of_the_first_bucket_begins_before_the_last_gradient_exists(found: Found) -> None:
    exchanged = begins(found[0]["timeline"], "ALLREDUCE", 0)
    computed = begins(found[0]["timeline"], "NEGOTIATE_ALLREDUCE", LAYERS - 1)
    assert len(exchanged) == len(computed) == STEPS
    # On a busy machine, one rank may begin a step later than the other.
    assert any(first < ready for first, ready in zip(exchanged, computed, strict=True))


def test_moving_statistics_of_several_types_are_averaged_only_when_they_are_read(found: Found) -> None:
    first, second = (each["statistics_of_two_types"] for each in found)
    assert first["types"] == ["bfloat16", "float32"]
    assert first["own"] != second["own"]
    assert first["averages"] == second["averages"]
    np.testing.assert_allclose(first["averages"], np.mean([first["own"], second["own"]], axis=0), rtol=0.01, atol=1e-3)
    assert first["untouched"] == [3.0, 0.0, 0.0, 0.0, 0.0]
    assert second["untouched"] == [6.0, 1.0, 1.0, 1.0, 1.0]
    assert first["trained"] == second["trained"]


@pytest.mark.parametrize("metric", ["loss", "accuracy", "f1"])
def test_metrics_of_the_ranks_become_those_of_all_examples(found: Found, metric: str) -> None:
    first, second = (each["vector_metrics"][metric] for each in found)
    assert first["average"] == second["average"]
    assert np.shape(first["average"]) == np.shape(first["own"])
    if metric == "f1":  # of the sums of the counts, which is not the average
        assert (np.array(first["average"]) <= np.maximum(first["own"], second["own"]) + 1e-6).all()
        return
    np.testing.assert_allclose(first["average"], np.mean([first["own"], second["own"]], axis=0), rtol=1e-6)
    assert first["own"] != second["own"]


def test_a_subclass_of_the_commit_callback_can_override_commit(found: Found) -> None:
    assert found[0]["commits"] == 3  # after 2 and 4 batches, and at the end of the epoch


def test_the_statistics_of_the_ranks_are_averaged_or_those_of_the_root_rank(found: Found) -> None:
    first, second = (each["statistics"] for each in found)
    means = np.array([first["own mean"], second["own mean"]])
    squares = np.array([first["own variance"], second["own variance"]]) + means**2
    mean = means.mean(axis=0)
    np.testing.assert_allclose(first["averaged"], [mean, squares.mean(axis=0) - mean**2], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(first["broadcast"], [first["own mean"], first["own variance"]], rtol=1e-5)
    for kind in ("averaged", "broadcast", "batch"):
        assert first[kind] == second[kind]


def test_rank_0_warns_once_about_a_training_that_does_not_synchronize(found: Found) -> None:
    warnings = found[0]["training_warnings"]
    (alone,), (weights,), (statistics,) = (
        warnings.pop(name) for name in ("plain optimizer", "no broadcast", "statistics")
    )
    assert "fit trains on 2 ranks, and each rank trains alone" in alone
    assert "Wrap the optimizer with hvd.DistributedOptimizer" in alone
    assert "the weights differ between the ranks (" in weights
    assert "pass hvd.callbacks.BroadcastGlobalVariablesCallback(0) to fit" in weights
    assert "moving_mean and 1 more" in statistics
    assert "average_statistics=True" in statistics
    assert warnings == {name: [] for name in ("none", "callback list", "own tape", "averaged", "plain optimizer again")}
    assert not any(found[1]["training_warnings"].values())


def test_join_is_refused_after_an_allreduce(found: Found) -> None:
    for rank in range(2):
        message = (
            f"RuntimeError: rank {rank}: hvd.join() does not support the grouped operations of this package: run the"
        )
        assert found[rank]["errors"]["join"].startswith(message)
        assert found[rank]["join"] in (0, 1)


def test_ranks_with_different_steps_or_metrics_get_an_error_with_both_numbers(found: Found) -> None:
    for each in found:
        assert each["errors"]["steps"].startswith(
            "ValueError: rank 0 has 2 steps per epoch and rank 1 has 3; every step needs all ranks, so call fit with"
        )
        assert each["errors"]["metrics"] == (
            "ValueError: MetricAverageCallback: epoch 1 has the metrics loss, val_loss on rank 0 and loss on rank 1; "
            "give all ranks the same metrics and validation"
        )


def test_messages_name_the_ranks_and_steps_of_trainings_of_unknown_and_different_lengths(
    run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    stalls = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30"}
    ended = run(2, [*preloaded_python, str(PROGRAMS / "uneven_steps.py")], stalls)
    assert ended.code != 0
    left = "has left the run in step 3 of epoch 1, for which its data has no batch"
    assert f"rank 0 {left}, and waits for the other ranks to leave it, since 1 s; " in ended.stderr
    assert re.search(f"^rank 0 on .* {left}; the other ranks end", ended.stderr, re.MULTILINE)
    assert "RuntimeError: the data of rank 0 has ended before step 3 of epoch 1; every step needs" in ended.stderr
    assert "RuntimeError: rank 1 was in step 3 of epoch 1 when another rank ended" in ended.stderr
