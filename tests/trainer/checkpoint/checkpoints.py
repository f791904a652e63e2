"""Output directories, models and writers for tests of checkpoints."""

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np

from horovodjob_trainer.checkpoint.checkpoint_file import CheckpointLayout, training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, open_output_directory
from horovodjob_trainer.checkpoint.program import TRAINER
from horovodjob_trainer.checkpoint.run_selection import RunSettings
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import CheckpointWriter, WritePolicy
from horovodjob_trainer.launch import Launch

SETTINGS = {"dataset": "digits", "batch_size": 32}
log_lines: list[str] = []


def network(width: int = 4) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    optimizer = keras.optimizers.RMSprop(1e-2)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mean_squared_error")
    return model


def train(model: Any, epochs: int) -> Any:
    random = np.random.default_rng(0)
    model.fit(random.random((32, 3)), random.random((32, 1)), epochs=epochs, verbose=0)
    return model


def state(epoch: int, **changes: Any) -> RunState:
    return RunState(**{"epochs": 9, "epoch_examples": 100, "first_size": 1, "position": 100 * epoch, **changes})


def writer(output: OutputDirectory, model: Any, keep: int = 10, failure_seconds: float = 90) -> CheckpointWriter:
    policy = WritePolicy(keep=keep, interval_seconds=math.inf, failure_seconds=failure_seconds)
    return CheckpointWriter(output, CheckpointLayout.of_model(model), policy, log_lines.append)


def write(output: OutputDirectory, model: Any, epoch: int, step: int = 0) -> None:
    checkpoints = writer(output, model)
    checkpoints.write(training_variables(model), state(epoch, position=100 * epoch + step), (epoch, step))
    checkpoints.wait()


def open_directory(
    directory: Path, *, resume: bool, settings: Any = None, job: str = "", attempt: int = 1
) -> OutputDirectory:
    launch = Launch(attempt=attempt, job=job, job_name=f"training/{job}")
    run_settings, when, log = RunSettings(settings or SETTINGS), "auto" if resume else "never", log_lines.append
    return open_output_directory(directory, "model", run_settings, TRAINER, launch=launch, resume=when, log=log)


def restore(output: OutputDirectory, model: Any) -> RunState | None:
    return output.restore(training_variables(model), log_lines.append)
