"""Checkpoints: whole or skipped, and only those of the same run."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint import Output, opened_output
from horovodjob_trainer.errors import OutputError

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


def trained(epochs: int) -> Any:
    model = network()
    random = np.random.default_rng(0)
    model.fit(random.random((32, 3)), random.random(32), epochs=epochs, verbose=0)
    return model


@pytest.fixture(scope="module")
def models() -> Any:
    return {epoch: trained(epoch) for epoch in (1, 2)}


@pytest.fixture
def output(tmp_path: Path, models: Any) -> Output:
    """Checkpoints of epochs 1 and 2."""
    opened = opened_output(tmp_path, resume=False, dataset="digits")
    for epoch, model in models.items():
        opened.save_checkpoint(model, epoch)
    return opened


def equal(first: Any, second: Any) -> bool:
    pairs = zip(
        [*first.weights, *first.optimizer.variables], [*second.weights, *second.optimizer.variables], strict=True
    )
    return all(np.array_equal(one, other) for one, other in pairs)


def test_weights_and_optimizer_come_back_bit_for_bit(output: Any, models: Any) -> None:
    model = network()
    assert output.restored_epoch(model, said.append) == 2
    assert equal(model, models[2])
    assert said == []


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.999])
def test_a_truncated_checkpoint_is_skipped_with_a_sentence(output: Any, models: Any, kept: Any) -> None:
    path = output.checkpoint(2)
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(len(content) * kept)])
    model = network()
    assert output.restored_epoch(model, said.append) == 1
    assert equal(model, models[1])
    assert len(said) == 1
    assert str(path) in said[0]
    assert "\n" not in said[0]


def test_a_checkpoint_of_another_network_is_skipped_and_changes_nothing(output: Any) -> None:
    model, untouched = network(width=5), network(width=5)
    untouched.set_weights(model.get_weights())
    assert output.restored_epoch(model, said.append) == 0
    assert equal(model, untouched)
    assert len(said) == 2


def test_a_new_run_ignores_what_an_earlier_one_left_in_the_directory(output: Any, tmp_path: Path) -> None:
    fresh = opened_output(tmp_path, resume=False, dataset="digits")
    assert fresh.restored_epoch(network(), said.append) == 0
    assert opened_output(tmp_path, resume=True, dataset="digits").run == fresh.run


def test_a_finished_run_is_not_continued(output: Any, tmp_path: Path) -> None:
    output.finish()
    assert opened_output(tmp_path, resume=True, dataset="digits").run != output.run


def test_a_run_on_other_data_is_not_continued(output: Any, tmp_path: Path) -> None:
    assert opened_output(tmp_path, resume=True, dataset="cifar10").run != output.run


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"run": 1, "dataset": "digits"}'])
def test_a_damaged_run_file_starts_a_new_run(output: Any, tmp_path: Path, content: Any) -> None:
    (tmp_path / ".horovodjob-run.json").write_text(content)
    assert opened_output(tmp_path, resume=True, dataset="digits").run != output.run


def test_what_a_killed_writer_left_half_done_is_removed(output: Any, tmp_path: Path) -> None:
    (tmp_path / ".partial-checkpoint-3.h5").write_bytes(b"half")
    opened_output(tmp_path, resume=True, dataset="digits")
    assert not list(tmp_path.glob(".partial-*"))


class Full:
    def save(self, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(output: Any, models: Any) -> None:
    before = output.checkpoint(2).read_bytes()
    with pytest.raises(OSError, match="no space left"):
        output.save_checkpoint(Full(), 2)
    assert output.checkpoint(2).read_bytes() == before
    assert not list(output.directory.glob(".partial-*"))


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=f"cannot write to {tmp_path}/file: .*; give another --dir"):
        opened_output(tmp_path / "file", resume=False, dataset="digits")


def test_a_distributed_optimizer_is_of_the_same_class_and_keeps_its_state(models: Any) -> None:
    optimizer = hvd.DistributedOptimizer(models[2].optimizer, compression=hvd.Compression.fp16)
    assert type(optimizer).__module__ == type(models[2].optimizer).__module__
    assert keras.optimizers.serialize(optimizer) == keras.optimizers.serialize(models[2].optimizer)
    for kept, original in zip(optimizer.variables, models[2].optimizer.variables, strict=True):
        np.testing.assert_array_equal(kept, original)


def test_what_cannot_be_synchronised_is_refused() -> None:
    distributed = hvd.DistributedOptimizer(keras.optimizers.SGD())
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(distributed)
    with pytest.raises(ValueError, match="LossScaleOptimizer"):
        hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()))
    with pytest.raises(TypeError, match="not str"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(TypeError, match="backward_passes_per_step"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), backward_passes_per_step=2)  # type: ignore[call-arg]


def test_a_change_of_the_learning_rate_corrects_the_momentum() -> None:
    model = network()
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), "mean_squared_error")
    model.optimizer.build(model.trainable_variables)
    for velocity in model.optimizer.momentums:
        velocity.assign(np.full(velocity.shape, 3.0))
    callback = hvd.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.1)
    callback.set_model(model)
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)
    assert all(np.allclose(velocity, 0.3) for velocity in model.optimizer.momentums)


@pytest.mark.parametrize(("staircase", "rates"), [(True, [1, 1, 0.5, 0.5]), (False, [1, 0.5**0.5, 0.5, 0.5**1.5])])
def test_a_constant_multiplier_is_an_exponential_decay_per_epoch(staircase: Any, rates: Any) -> None:
    model, seen = network(), []
    callback = hvd.callbacks.LearningRateScheduleCallback(1.0, 0.5, staircase=staircase, steps_per_epoch=2)
    callback.set_model(model)
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        for batch in range(2):
            callback.on_train_batch_begin(batch)
            seen.append(float(model.optimizer.learning_rate))
    assert seen == pytest.approx(rates)
