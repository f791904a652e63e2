"""Checkpoints: whole or skipped, only those of the same run, written beside the training."""

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
from horovodjob_trainer.checkpoint.layout import Form, described, snapshot, variables_of
from horovodjob_trainer.checkpoint.output_directory import Checkpoints, Output, opened_output
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError

SETTINGS = {"dataset": "digits", "batch_size": 32}
said: list[str] = []


@pytest.fixture(autouse=True)
def forget_what_was_said() -> None:
    said.clear()


def network(width: int = 4) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    optimizer = keras.optimizers.RMSprop(1e-2)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mean_squared_error")
    return model


class OwnModel(keras.Model):  # type: ignore[misc]
    """A model that Keras can write in no form: it does not say what it was made with."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(width)
        self.normal = keras.layers.BatchNormalization()

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.normal(self.dense(inputs), training=training)


def trained(model: Any, epochs: int) -> Any:
    random = np.random.default_rng(0)
    model.fit(random.random((32, 3)), random.random((32, 1)), epochs=epochs, verbose=0)
    return model


def state(epoch: int, **changes: Any) -> RunState:
    return RunState(**{"epochs": 9, "epoch_examples": 100, "first_size": 1, "position": 100 * epoch, **changes})


def writer(output: Output, model: Any, keep: int = 10) -> Checkpoints:
    return Checkpoints(output, Form.of(model), keep=keep, say=said.append)


def write(output: Output, model: Any, epoch: int, step: int = 0) -> None:
    checkpoints = writer(output, model)
    checkpoints.write(snapshot(variables_of(model)), state(epoch), (epoch, step))
    checkpoints.wait()


def opened(directory: Path, *, resume: bool, settings: Any = None) -> Output:
    return opened_output(directory, "model", settings or SETTINGS, resume=resume, say=said.append)


@pytest.fixture(scope="module")
def models() -> Any:
    return {epoch: trained(network(), epoch) for epoch in (1, 2)}


@pytest.fixture
def output(tmp_path: Path, models: Any) -> Output:
    """Checkpoints of epochs 1 and 2."""
    directory = opened(tmp_path, resume=False)
    for epoch, model in models.items():
        write(directory, model, epoch)
    return directory


def restored(output: Output, model: Any) -> RunState | None:
    return output.restored(variables_of(model), said.append)


def equal(first: Any, second: Any) -> bool:
    pairs = zip(variables_of(first), variables_of(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def test_weights_optimizer_and_state_come_back_bit_for_bit(output: Any, models: Any) -> None:
    model = network()
    assert restored(output, model) == state(2)
    assert equal(model, models[2])
    assert said == []


def test_a_checkpoint_is_a_model_for_plain_keras(output: Any, models: Any) -> None:
    loaded = keras.saving.load_model(output.checkpoint(2))
    inputs = np.ones((2, 3), np.float32)
    assert np.array_equal(loaded.predict(inputs, verbose=0), models[2].predict(inputs, verbose=0))


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.999])
def test_a_truncated_checkpoint_is_skipped_with_a_sentence(output: Any, models: Any, kept: Any) -> None:
    path = output.checkpoint(2)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(len(content) * kept)])
    model = network()
    assert restored(output, model) == state(1)
    assert equal(model, models[1])
    assert len(said) == 1
    assert str(path) in said[0]
    assert "\n" not in said[0]


@pytest.mark.parametrize("name", ["model_weights", "optimizer_weights"])
def test_one_changed_number_is_found_by_the_checksum(output: Any, models: Any, name: str) -> None:
    with h5py.File(output.checkpoint(2), "r+") as file:
        arrays: list[Any] = []
        file[name].visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
        array = next(item for item in arrays if item.shape)
        array[...] = np.nextafter(array[...], np.float32(9))
    model = network()
    assert restored(output, model) == state(1)
    assert equal(model, models[1])
    assert "does not match its checksum" in said[0]


def test_a_changed_state_is_found_by_the_checksum(output: Any) -> None:
    with h5py.File(output.checkpoint(2), "r+") as file:
        told = json.loads(file.attrs["horovodjob"])
        told["state"]["position"] += 1
        file.attrs["horovodjob"] = json.dumps(told)
    assert restored(output, network()) == state(1)
    assert "does not match its checksum" in said[0]


def test_a_checkpoint_of_another_network_is_skipped_and_changes_nothing(output: Any) -> None:
    model, untouched = network(width=5), network(width=5)
    untouched.set_weights(model.get_weights())
    assert restored(output, model) is None
    assert equal(model, untouched)
    assert len(said) == 2


def test_a_new_run_ignores_what_an_earlier_one_left_in_the_directory(output: Any, tmp_path: Path) -> None:
    fresh = opened(tmp_path, resume=False)
    assert restored(fresh, network()) is None
    assert opened(tmp_path, resume=True).run == fresh.run


def test_a_run_with_other_settings_is_another_run_and_that_is_said(output: Any, tmp_path: Path) -> None:
    other = opened(tmp_path, resume=True, settings=SETTINGS | {"batch_size": 64})
    assert other.run != output.run
    assert "batch_size was 32 and is 64" in said[0]


def test_steps_inside_an_epoch_come_after_it_and_before_the_next(output: Any, models: Any) -> None:
    for epoch, step in ((1, 9), (1, 10), (2, 3), (0, 50)):
        write(output, models[1], epoch, step)
    names = [path.name for path in output.checkpoints()]
    assert names == [f"checkpoint-{name}.h5" for name in ("2-3", "2", "1-10", "1-9", "1", "0-50")]


def test_the_newest_and_the_best_are_kept_and_files_of_other_runs_are_not_touched(tmp_path: Path, models: Any) -> None:
    earlier = opened(tmp_path, resume=False)
    write(earlier, models[1], 8)
    output = opened(tmp_path, resume=False)
    checkpoints = writer(output, models[1], keep=2)
    for epoch in range(1, 7):
        best = {"best": 1.0, "best_epoch": min(epoch, 3)}
        checkpoints.write(snapshot(variables_of(models[1])), state(epoch, **best), (epoch, 0))
    checkpoints.wait()
    assert {path.name for path in output.checkpoints()} == {f"checkpoint-{epoch}.h5" for epoch in (3, 5, 6, 8)}
    # The next attempt knows what the one before left.
    again = writer(opened(tmp_path, resume=True), models[1], keep=2)
    again.write(snapshot(variables_of(models[1])), state(7, best=1.0, best_epoch=3), (7, 0))
    again.wait()
    assert {path.name for path in output.checkpoints()} == {f"checkpoint-{epoch}.h5" for epoch in (3, 6, 7, 8)}


def test_what_is_written_is_the_moment_of_the_snapshot(tmp_path: Path) -> None:
    output, model = opened(tmp_path, resume=False), trained(network(), 1)
    checkpoints, before = writer(output, model), [np.array(v) for v in variables_of(model)]
    checkpoints.write(snapshot(variables_of(model)), state(1), (1, 0))
    trained(model, 1)  # goes on while the file is written
    checkpoints.wait()
    other = network()
    restored(output, other)
    assert all(np.array_equal(was, now) for was, now in zip(before, variables_of(other), strict=True))


def test_a_disk_that_is_full_costs_the_checkpoint_and_not_the_run(output: Any, models: Any, tmp_path: Path) -> None:
    (tmp_path / ".partial-checkpoint-3.h5").symlink_to("/dev/full")
    write(output, models[1], 3)
    assert said == [f"Training goes on without the checkpoint {output.checkpoint(3)}: No space left on device"]
    assert [path.name for path in output.checkpoints()] == ["checkpoint-2.h5", "checkpoint-1.h5"]
    assert described(output.checkpoint(2)).run == output.run
    write(output, models[1], 3)  # there is room again
    assert described(output.checkpoint(3)).run == output.run


def test_a_model_that_keras_cannot_write_resumes_as_well_and_leaves_its_weights(tmp_path: Path) -> None:
    def own() -> Any:
        model = OwnModel(2)
        model(np.zeros((1, 3)))
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam()), "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        return model

    hvd.init()
    output, model = opened(tmp_path, resume=False), trained(own(), 2)
    write(output, model, 2)
    other = own()
    assert restored(output, other) == state(2)
    assert equal(model, other)
    output.save_models(model, said.append)
    assert [path.name for path in (tmp_path / "saved_models").iterdir()] == ["model.weights.h5"]
    other.set_weights([np.zeros(weight.shape) for weight in other.weights])
    other.load_weights(tmp_path / "saved_models" / "model.weights.h5")
    assert all(np.array_equal(one, two) for one, two in zip(model.weights, other.weights, strict=True))


def test_files_that_an_interrupted_write_left_are_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".partial-checkpoint-1.h5").write_bytes(b"half")
    opened(tmp_path, resume=False)
    assert not list(tmp_path.glob(".partial-*"))


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="give another --dir"):
        opened(tmp_path / "file", resume=False)


def test_a_finished_run_is_not_gone_on_with(output: Any, tmp_path: Path) -> None:
    output.finish()
    assert opened(tmp_path, resume=True).run != output.run


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"run": 1, "settings": {}}', '{"run": "a"}'])
def test_a_damaged_run_file_starts_a_new_run(output: Any, tmp_path: Path, content: Any) -> None:
    (tmp_path / ".horovodjob-run.json").write_text(content)
    assert opened(tmp_path, resume=True).run != output.run
