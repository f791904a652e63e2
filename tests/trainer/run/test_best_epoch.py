"""The metric that selects the best epoch."""

from collections.abc import Callable
from typing import Any

import pytest

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import load_configuration
from horovodjob_trainer.errors import JobError, ModelError


def share_of_hits(y_true: Any, y_pred: Any) -> Any:
    """A metric of a user."""
    return y_pred - y_true


@pytest.fixture
def compiled() -> Callable[..., Any]:
    """A model with these metrics, before or after its first step."""
    import keras
    import numpy as np

    def build(*metrics: Any, is_built: bool = False) -> Any:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        model.compile("sgd", "mean_squared_error", metrics=list(metrics))
        if is_built:
            model.evaluate(np.zeros((4, 2)), np.zeros((4, 2)), verbose=0)
        return model

    return build


def mode(model: Any, monitor: str, *flags: str) -> str:
    from horovodjob_trainer.run.metrics.best_epoch import monitor_mode

    return monitor_mode(model, load_configuration([f"--monitor={monitor}", *flags], environment={}))


def best_epoch(model: Any, monitor: str, values: list[float], *flags: str) -> int:
    from horovodjob_trainer.run.metrics.best_epoch import update_best_epoch

    configuration = load_configuration([f"--monitor={monitor}", *flags], environment={})
    state = RunState(epochs=9, epoch_examples=1, first_size=1)
    for value in values:
        state.position += 1
        update_best_epoch(model, state, {monitor: value}, configuration, lambda _: None)
    return state.best_epoch


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(
    ("metric", "expected"),
    [("Recall", "max"), ("R2Score", "max"), ("MeanAbsoluteError", "min")],
)
def test_a_metric_of_keras_has_its_own_direction(compiled: Any, metric: str, expected: str, is_built: bool) -> None:
    import keras

    model = compiled(getattr(keras.metrics, metric)(name="own"), is_built=is_built)
    assert mode(model, "val_own") == expected


def test_the_loss_is_minimized_and_an_accuracy_is_maximized(compiled: Any) -> None:
    assert mode(compiled("accuracy"), "val_loss") == "min"
    assert mode(compiled("accuracy"), "val_accuracy") == "max"
    assert mode(compiled("mae"), "mae") == "min"


def test_a_metric_of_a_user_needs_a_mode_before_the_first_step(compiled: Any) -> None:
    from horovodjob_trainer.run.metrics.best_epoch import check_monitor

    model = compiled(share_of_hits)
    with pytest.raises(ModelError, match=r"--monitor val_share_of_hits: .*; set --monitor-mode max or min"):
        check_monitor(model, load_configuration(["--monitor=val_share_of_hits"], environment={}))
    check_monitor(model, load_configuration(["--monitor=val_share_of_hits", "--monitor-mode=max"], environment={}))
    check_monitor(model, load_configuration(["--monitor=val_loss"], environment={}))


def test_a_value_of_a_custom_step_needs_a_mode_after_the_first_epoch(compiled: Any) -> None:
    with pytest.raises(JobError, match="set --monitor-mode"):
        best_epoch(compiled(), "val_reward", [1.0])
    assert best_epoch(compiled(), "val_reward", [1.0, 3.0, 2.0], "--monitor-mode=max") == 2
    assert best_epoch(compiled(), "val_reward", [1.0, 3.0, 2.0], "--monitor-mode=min") == 1


def test_a_resumed_run_with_another_metric_does_not_compare_its_values_with_those_of_the_first(compiled: Any) -> None:
    from horovodjob_trainer.run.metrics.best_epoch import update_best_epoch

    state, model = RunState(epochs=9, epoch_examples=1, first_size=1, position=1), compiled("accuracy")
    metrics = {"val_loss": 0.1, "val_accuracy": 0.05}
    update_best_epoch(model, state, metrics, load_configuration([], environment={}), lambda _: None)
    state = RunState.from_json(state.to_json())
    state.position = 2
    accuracy = load_configuration(["--monitor=val_accuracy"], environment={})
    update_best_epoch(model, state, metrics, accuracy, lambda _: None)
    assert (state.best_epoch, state.best) == (2, 0.05)
