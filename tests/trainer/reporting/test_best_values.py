"""The best values of a run: the ends of the values of metrics, and which of both is declared to be the best."""

import json
import math
from typing import Any

import keras
import pytest

from horovodjob_trainer.callbacks import ProgressCallback
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.reporting.best_values import BestValues, Ends, declared_modes, record_ends


def dice(truth: Any, prediction: Any) -> Any:
    return keras.ops.mean(truth * prediction)


METRICS = (
    keras.metrics.CategoricalAccuracy(name="accuracy"),
    keras.metrics.MeanAbsoluteError(name="mae"),
    keras.metrics.MeanMetricWrapper(dice, name="dice"),
    keras.metrics.AUC(name="giou_loss"),
)


def test_the_ends_are_those_of_all_epochs_and_nan_is_none_of_them() -> None:
    ends: Ends = {}
    for epoch, value in enumerate((0.5, math.nan, 0.3, 0.9, 0.3, 0.9, math.inf), 1):
        record_ends(ends, epoch, {"loss": value, "recall": 0.5, "recall/0": value})
    assert ends == {"loss": [0.3, 3, 0.9, 4], "recall": [0.5, 1, 0.5, 1]}


def test_a_checkpoint_has_the_ends_for_an_attempt_that_resumes() -> None:
    state = RunState(epochs=9, epoch_examples=64, first_size=2)
    record_ends(state.ends, 1, {"loss": 0.5})
    stored = json.loads(json.dumps(state.to_json()))
    assert RunState.from_json(stored).ends == {"loss": [0.5, 1, 0.5, 1]}
    del stored["ends"]
    assert RunState.from_json(stored).ends == {}, "a checkpoint of an earlier release"


def test_a_report_has_the_metric_that_selects_the_modes_and_the_ends() -> None:
    found = BestValues("dice", {"dice": "max"}, {"dice": [0.1, 3, 0.9, 4]}).fields()
    extremes = {"dice": {"min": {"value": 0.1, "epoch": 3}, "max": {"value": 0.9, "epoch": 4}}}
    assert found == {"monitor": "dice", "modes": {"dice": "max"}, "extremes": extremes}
    assert BestValues(None, {}, {}).fields() == {}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("loss", "min"),
        ("val_accuracy", "max"),
        ("mask_accuracy", "max"),
        ("dice", None),
        ("giou_loss", "max"),
    ],
)
def test_the_mode_of_a_metric_is_what_its_object_declares_and_does_not_follow_from_its_name(
    name: str, mode: str | None
) -> None:
    assert declared_modes([name], METRICS).get(name) == mode


def test_a_callback_declares_the_mode_of_its_metric_unless_it_guesses() -> None:
    declaring = keras.callbacks.EarlyStopping("val_dice", mode="max")
    assert declared_modes(["val_dice"], METRICS, [declaring]) == {"val_dice": "max"}
    assert declared_modes(["val_dice"], METRICS, [keras.callbacks.EarlyStopping("val_dice", mode="auto")]) == {}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({"monitor": "dice", "mode": "up"}, 'must be "min" or "max", not \'up\''), ({"mode": "max"}, "needs the metric")],
)
def test_a_mode_without_sense_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ProgressCallback(**arguments)
