"""Checkpoints whose values are not numbers."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer.checkpoint.checkpoint_file import CheckpointLayout, copies, snapshot, training_variables
from trainer.checkpoint.checkpoints import log_lines, network, open_directory, restore, state, write, writer

POISONED_STEP = 10
OWN = f"""
import keras

class Poisoned(keras.Model):
    '''Its weights are NaN after a step that has a finite loss.'''

    def train_step(self, data):
        logs = super().train_step(data)
        weight, steps = self.trainable_variables[0], self.optimizer.iterations
        weight.assign(keras.ops.where(steps == {POISONED_STEP}, float("nan"), weight))
        return logs

def build(shape, classes):
    inputs = keras.Input(shape)
    return Poisoned(inputs, keras.layers.Dense(classes, "softmax")(keras.layers.Flatten()(inputs)))
"""


@pytest.fixture(autouse=True)
def clear_log_lines() -> None:
    log_lines.clear()


def poisoned(value: float, variable: Callable[[Any], Any]) -> Any:
    model = network()
    variable(model).assign(np.full(variable(model).shape, value))
    return model


@pytest.mark.parametrize(
    ("value", "variable"),
    [
        (math.nan, lambda model: model.weights[0]),
        (math.inf, lambda model: model.weights[0]),
        (math.nan, lambda model: model.optimizer.variables[-1]),
    ],
    ids=["NaN weight", "infinite weight", "NaN of the optimizer"],
)
def test_a_snapshot_that_is_not_finite_replaces_no_checkpoint(tmp_path: Path, value: float, variable: Any) -> None:
    output = open_directory(tmp_path, resume=False)
    write(output, network(), 1)
    model = poisoned(value, variable)
    checkpoints = writer(output, model, keep=1)
    checkpoints.write(training_variables(model), state(2, step=20), (2, 0))
    checkpoints.wait()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-1.h5"]
    assert re.search(r"cannot write the checkpoint \S+/checkpoint-2.h5: \S+ is (NaN|infinite);", log_lines[0])
    checkpoints.finish(training_variables(model), state(2, step=20), (2, 0), deadline=math.inf)
    assert "stopped after step 20, of which there is no checkpoint" in checkpoints.resume_point(20)
    assert restore(open_directory(tmp_path, resume=True), network()) == state(1)


def test_a_constant_mask_can_be_infinite(tmp_path: Path) -> None:
    model = network()
    model.layers[0].trainable = False
    model.layers[0].kernel.assign(np.full(model.layers[0].kernel.shape, -math.inf))
    output = open_directory(tmp_path, resume=False)
    write(output, model, 1)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-1.h5"]


def test_a_checkpoint_that_is_not_finite_is_skipped(tmp_path: Path) -> None:
    output, model = open_directory(tmp_path, resume=False), poisoned(math.nan, lambda model: model.weights[0])
    write(output, network(), 1)
    values = copies(snapshot(training_variables(model)))
    CheckpointLayout.of_model(model).write(output.checkpoint_path(2), values, output.run, state(2))
    assert restore(output, network()) == state(1)
    assert "is NaN" in log_lines[0]


def test_a_training_ends_without_a_model_of_invalid_weights(train_digits: Any, tmp_path: Path) -> None:
    flags = ("--epochs", 1, "--checkpoint-steps", POISONED_STEP // 2, "--max-steps", POISONED_STEP,
             "--no-augment")  # fmt: skip
    ended = train_digits(2, OWN, *flags)
    assert ended.code == 3, ended.stderr
    (sentence,) = ended.errors
    assert f"/kernel is NaN after step {POISONED_STEP}, although the loss is a number; check the data" in sentence
    assert [path.name for path in (tmp_path / "out").glob("checkpoint-*")] == ["checkpoint-0-5.h5"]
    assert not list((tmp_path / "out/saved_models").iterdir())
