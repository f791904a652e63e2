"""Checkpoints: integrity checks, the identity of the run, and writes during training."""

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import numpy as np
import pytest

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.layout import CheckpointLayout, read_description, snapshot, training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, open_output_directory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import CheckpointWriter
from horovodjob_trainer.errors import OutputError

SETTINGS = {"dataset": "digits", "batch_size": 32}
log_lines: list[str] = []


@pytest.fixture(autouse=True)
def clear_log_lines() -> None:
    log_lines.clear()


def network(width: int = 4) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    optimizer = keras.optimizers.RMSprop(1e-2)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mean_squared_error")
    return model


class OwnModel(keras.Model):  # type: ignore[misc]
    """A model that Keras cannot save, because it has no get_config."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(width)
        self.normal = keras.layers.BatchNormalization()

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.normal(self.dense(inputs), training=training)


def train(model: Any, epochs: int) -> Any:
    random = np.random.default_rng(0)
    model.fit(random.random((32, 3)), random.random((32, 1)), epochs=epochs, verbose=0)
    return model


def state(epoch: int, **changes: Any) -> RunState:
    return RunState(**{"epochs": 9, "epoch_examples": 100, "first_size": 1, "position": 100 * epoch, **changes})


def writer(output: OutputDirectory, model: Any, keep: int = 10) -> CheckpointWriter:
    return CheckpointWriter(output, CheckpointLayout.of_model(model), keep=keep, log=log_lines.append)


def write(output: OutputDirectory, model: Any, epoch: int, step: int = 0) -> None:
    checkpoints = writer(output, model)
    checkpoints.write(snapshot(training_variables(model)), state(epoch), (epoch, step))
    checkpoints.wait()


def open_directory(directory: Path, *, resume: bool, settings: Any = None) -> OutputDirectory:
    return open_output_directory(directory, "model", settings or SETTINGS, resume=resume, log=log_lines.append)


@pytest.fixture(scope="module")
def models() -> Any:
    return {epoch: train(network(), epoch) for epoch in (1, 2)}


@pytest.fixture
def output(tmp_path: Path, models: Any) -> OutputDirectory:
    """Checkpoints of epochs 1 and 2."""
    directory = open_directory(tmp_path, resume=False)
    for epoch, model in models.items():
        write(directory, model, epoch)
    return directory


def restore(output: OutputDirectory, model: Any) -> RunState | None:
    return output.restore(training_variables(model), log_lines.append)


def equal(first: Any, second: Any) -> bool:
    pairs = zip(training_variables(first), training_variables(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def test_weights_optimizer_and_state_are_restored_bit_for_bit(output: Any, models: Any) -> None:
    model = network()
    assert restore(output, model) == state(2)
    assert equal(model, models[2])
    assert log_lines == []


def test_plain_keras_loads_a_checkpoint_as_a_model(output: Any, models: Any) -> None:
    loaded = keras.saving.load_model(output.checkpoint_path(2))
    inputs = np.ones((2, 3), np.float32)
    assert np.array_equal(loaded.predict(inputs, verbose=0), models[2].predict(inputs, verbose=0))


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.999])
def test_a_truncated_checkpoint_is_skipped_with_a_message(output: Any, models: Any, kept: Any) -> None:
    path = output.checkpoint_path(2)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(len(content) * kept)])
    model = network()
    assert restore(output, model) == state(1)
    assert equal(model, models[1])
    assert len(log_lines) == 1
    assert str(path) in log_lines[0]
    assert "\n" not in log_lines[0]


@pytest.mark.parametrize("name", ["model_weights", "optimizer_weights"])
def test_the_checksum_detects_one_changed_value(output: Any, models: Any, name: str) -> None:
    with h5py.File(output.checkpoint_path(2), "r+") as file:
        arrays: list[Any] = []
        file[name].visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        array = next(item for item in arrays if item.shape)
        array[...] = np.nextafter(array[...], np.float32(9))
    model = network()
    assert restore(output, model) == state(1)
    assert equal(model, models[1])
    assert "does not match its checksum" in log_lines[0]


def test_the_checksum_detects_a_changed_state(output: Any) -> None:
    with h5py.File(output.checkpoint_path(2), "r+") as file:
        metadata = json.loads(file.attrs["horovodjob"])
        metadata["state"]["position"] += 1
        file.attrs["horovodjob"] = json.dumps(metadata)
    assert restore(output, network()) == state(1)
    assert "does not match its checksum" in log_lines[0]


def test_a_checkpoint_of_a_different_network_is_skipped_and_changes_no_variable(output: Any) -> None:
    model, untouched = network(width=5), network(width=5)
    untouched.set_weights(model.get_weights())
    assert restore(output, model) is None
    assert equal(model, untouched)
    assert len(log_lines) == 2


def test_a_new_run_ignores_checkpoints_of_an_earlier_run_in_the_directory(output: Any, tmp_path: Path) -> None:
    fresh = open_directory(tmp_path, resume=False)
    assert restore(fresh, network()) is None
    assert open_directory(tmp_path, resume=True).run == fresh.run


def test_a_run_with_different_settings_is_a_new_run_and_logs_the_difference(output: Any, tmp_path: Path) -> None:
    other = open_directory(tmp_path, resume=True, settings=SETTINGS | {"batch_size": 64})
    assert other.run != output.run
    assert "batch_size was 32 and is 64" in log_lines[0]


def test_checkpoints_within_an_epoch_are_sorted_between_those_of_epochs(output: Any, models: Any) -> None:
    for epoch, step in ((1, 9), (1, 10), (2, 3), (0, 50)):
        write(output, models[1], epoch, step)
    names = [path.name for path in output.checkpoints()]
    assert names == [f"checkpoint-{name}.h5" for name in ("2-3", "2", "1-10", "1-9", "1", "0-50")]


def test_the_newest_and_the_best_are_kept_and_files_of_other_runs_are_not_touched(tmp_path: Path, models: Any) -> None:
    earlier = open_directory(tmp_path, resume=False)
    write(earlier, models[1], 8)
    output = open_directory(tmp_path, resume=False)
    checkpoints = writer(output, models[1], keep=2)
    for epoch in range(1, 7):
        best = {"best": 1.0, "best_epoch": min(epoch, 3)}
        checkpoints.write(snapshot(training_variables(models[1])), state(epoch, **best), (epoch, 0))
    checkpoints.wait()
    assert {path.name for path in output.checkpoints()} == {f"checkpoint-{epoch}.h5" for epoch in (3, 5, 6, 8)}
    # The next attempt also deletes checkpoints of the previous one.
    next_writer = writer(open_directory(tmp_path, resume=True), models[1], keep=2)
    next_writer.write(snapshot(training_variables(models[1])), state(7, best=1.0, best_epoch=3), (7, 0))
    next_writer.wait()
    assert {path.name for path in output.checkpoints()} == {f"checkpoint-{epoch}.h5" for epoch in (3, 6, 7, 8)}


def test_a_checkpoint_contains_the_values_of_the_snapshot(tmp_path: Path) -> None:
    output, model = open_directory(tmp_path, resume=False), train(network(), 1)
    checkpoints, before = writer(output, model), [np.array(v) for v in training_variables(model)]
    checkpoints.write(snapshot(training_variables(model)), state(1), (1, 0))
    train(model, 1)  # while the file is written
    checkpoints.wait()
    other = network()
    restore(output, other)
    assert all(np.array_equal(was, now) for was, now in zip(before, training_variables(other), strict=True))


def test_a_full_disk_prevents_the_checkpoint_and_does_not_end_the_run(output: Any, models: Any, tmp_path: Path) -> None:
    (tmp_path / ".partial-checkpoint-3.h5").symlink_to("/dev/full")
    write(output, models[1], 3)
    assert log_lines == [
        f"Training continues without the checkpoint {output.checkpoint_path(3)}: No space left on device"
    ]
    assert [path.name for path in output.checkpoints()] == ["checkpoint-2.h5", "checkpoint-1.h5"]
    assert read_description(output.checkpoint_path(2)).run == output.run
    write(output, models[1], 3)  # there is space again
    assert read_description(output.checkpoint_path(3)).run == output.run


def test_a_model_that_keras_cannot_save_is_restored_too_and_its_weights_are_saved(tmp_path: Path) -> None:
    def own() -> Any:
        model = OwnModel(2)
        model(np.zeros((1, 3)))
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam()), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        return model

    hvd.init()
    output, model = open_directory(tmp_path, resume=False), train(own(), 2)
    write(output, model, 2)
    other = own()
    assert restore(output, other) == state(2)
    assert equal(model, other)
    output.save_models(model, log_lines.append)
    assert [path.name for path in (tmp_path / "saved_models").iterdir()] == ["model.weights.h5"]
    other.set_weights([np.zeros(weight.shape) for weight in other.weights])
    other.load_weights(tmp_path / "saved_models" / "model.weights.h5")
    assert all(np.array_equal(one, two) for one, two in zip(model.weights, other.weights, strict=True))


def test_partial_files_of_an_interrupted_write_are_deleted(tmp_path: Path) -> None:
    (tmp_path / ".partial-checkpoint-1.h5").write_bytes(b"half")
    open_directory(tmp_path, resume=False)
    assert not list(tmp_path.glob(".partial-*"))


def test_a_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="use another --dir"):
        open_directory(tmp_path / "file", resume=False)


def test_a_finished_run_is_not_resumed(output: Any, tmp_path: Path) -> None:
    output.finish()
    assert open_directory(tmp_path, resume=True).run != output.run


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"run": 1, "settings": {}}', '{"run": "a"}'])
def test_a_damaged_run_file_starts_a_new_run(output: Any, tmp_path: Path, content: Any) -> None:
    (tmp_path / ".horovodjob-run.json").write_text(content)
    assert open_directory(tmp_path, resume=True).run != output.run
