"""Checkpoints: integrity checks, the identity of the run, and writes during training."""

import json
import math
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import numpy as np
import pytest

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint import writer as writer_module
from horovodjob_trainer.checkpoint.checkpoint_file import copies, read_description, training_variables
from horovodjob_trainer.checkpoint.heartbeat import FRESH_SECONDS, Heartbeat
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.errors import OutputError
from trainer.checkpoint.checkpoints import (
    log_lines,
    network,
    open_directory,
    restore,
    state,
    train,
    write,
    writer,
)


@pytest.fixture(autouse=True)
def clear_log_lines() -> None:
    log_lines.clear()


class OwnModel(keras.Model):  # type: ignore[misc]
    """A model that Keras cannot save, because it has no get_config."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(width)
        self.normal = keras.layers.BatchNormalization()

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.normal(self.dense(inputs), training=training)


def names(output: OutputDirectory) -> list[str]:
    """The names of all checkpoints in the directory, also of other runs."""
    return sorted(path.name for path in output.directory.glob("checkpoint-*.h5"))


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


def equal(first: Any, second: Any) -> bool:
    pairs = zip(training_variables(first), training_variables(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def test_weights_optimizer_and_state_are_restored_bit_for_bit(output: Any, models: Any) -> None:
    model = network()
    assert restore(output, model) == state(2)
    assert equal(model, models[2])
    assert log_lines == []


@pytest.mark.parametrize("kept", [0, 100, 0.999])
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


@pytest.mark.parametrize("changed", ["model_weights", "optimizer_weights", "state"])
def test_the_checksum_detects_one_changed_value(output: Any, models: Any, changed: str) -> None:
    with h5py.File(output.checkpoint_path(2), "r+") as file:
        if changed == "state":
            metadata = json.loads(file.attrs["horovodjob"])
            metadata["state"]["position"] += 1
            file.attrs["horovodjob"] = json.dumps(metadata)
        else:
            arrays: list[Any] = []
            file[changed].visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
            array = next(item for item in arrays if item.shape)
            array[...] = np.nextafter(array[...], np.float32(9))
    model = network()
    assert restore(output, model) == state(1)
    assert equal(model, models[1])
    assert "does not match its checksum" in log_lines[0]


def test_a_run_does_not_resume_with_a_different_network_and_changes_no_variable(output: Any) -> None:
    model, untouched = network(width=5), network(width=5)
    untouched.set_weights(model.get_weights())
    with pytest.raises(OutputError, match=r"can be used, such as .*: it belongs to a different network or optimizer"):
        restore(output, model)
    assert equal(model, untouched)
    assert len(log_lines) == 2


def test_checkpoints_are_sorted_by_position_because_names_depend_on_the_number_of_ranks(
    output: Any, models: Any
) -> None:
    for epoch, step, position in ((1, 9, 109), (1, 10, 110), (1, 4, 150), (0, 50, 50)):
        checkpoints = writer(output, models[1])
        checkpoints.write(training_variables(models[1]), state(epoch, position=position), (epoch, step))
        checkpoints.wait()
    own = [path.name for _, path in output.own_checkpoints()]
    assert own == [f"checkpoint-{name}.h5" for name in ("0-50", "1", "1-9", "1-10", "1-4", "2")]


def test_the_newest_and_the_best_are_kept_and_other_files_are_not_touched(tmp_path: Path, models: Any) -> None:
    output = open_directory(tmp_path, resume=False)
    (tmp_path / "checkpoint-8.h5.copy").touch()
    checkpoints = writer(output, models[1], keep=2)
    for epoch in range(1, 7):
        best = {"best": 1.0, "best_epoch": min(epoch, 3)}
        checkpoints.write(training_variables(models[1]), state(epoch, **best), (epoch, 0))
    checkpoints.wait()
    assert names(output) == [f"checkpoint-{epoch}.h5" for epoch in (3, 5, 6)]
    # The next attempt also deletes checkpoints of the previous one.
    next_writer = writer(open_directory(tmp_path, resume=True), models[1], keep=2)
    next_writer.write(training_variables(models[1]), state(7, best=1.0, best_epoch=3), (7, 0))
    next_writer.wait()
    assert names(output) == [f"checkpoint-{epoch}.h5" for epoch in (3, 6, 7)]
    assert (tmp_path / "checkpoint-8.h5.copy").exists()


def test_a_checkpoint_contains_the_values_of_its_step_although_the_writer_copies_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, model = open_directory(tmp_path, resume=False), train(network(), 1)
    checkpoints, before = writer(output, model), [np.array(v) for v in training_variables(model)]
    is_trained, names = threading.Event(), []

    def copy_later(tensors: Any) -> Any:
        names.append(threading.current_thread().name)
        assert is_trained.wait(60)
        return copies(tensors)

    monkeypatch.setattr(writer_module, "copies", copy_later)
    checkpoints.write(training_variables(model), state(1), (1, 0))
    train(model, 1)
    assert not all(map(np.array_equal, before, training_variables(model)))
    is_trained.set()
    checkpoints.wait()
    other = network()
    restore(output, other)
    assert names == ["checkpoint"]  # the thread of the training waits neither for the device nor for the copies
    assert all(np.array_equal(was, now) for was, now in zip(before, training_variables(other), strict=True))


def fill_disk(output: OutputDirectory, name: str) -> None:
    """Make the next write of this checkpoint fail as on a full disk."""
    (output.directory / f".partial-{output.token}-{name}").symlink_to("/dev/full")


def test_a_full_disk_is_logged_at_once_and_the_checkpoint_is_written_when_there_is_space(
    output: Any, models: Any
) -> None:
    output.checkpoint_path(1).unlink()  # there is no old checkpoint to delete
    checkpoints, variables, path = writer(output, models[1]), training_variables(models[1]), output.checkpoint_path(3)
    fill_disk(output, path.name)
    checkpoints.write(variables, state(3, step=30), (3, 0))
    checkpoints.wait()
    problem = f"the trainer cannot write the checkpoint {path}: No space left on device"
    assert log_lines == [f"Training continues, but {problem}; it tries again in 30 s"]
    assert names(output) == ["checkpoint-2.h5"]
    assert checkpoints.resume_point(30).startswith("stopped after step 30, of which there is no checkpoint: ")
    fill_disk(output, path.name)
    checkpoints.finish(variables, state(3, step=30), (3, 0), deadline=math.inf)
    assert log_lines[1:] == [log_lines[0], f"Wrote the checkpoint {path}"]
    assert read_description(path).run == output.run
    assert checkpoints.resume_point(30) == "stopped after step 30, from which the next attempt continues"
    assert checkpoints.problem is None


@pytest.mark.parametrize(("best", "deleted"), [(0, 1), (2, 1), (1, 2)])
def test_an_old_checkpoint_makes_room_on_a_full_disk_but_not_the_best(
    output: Any, models: Any, best: int, deleted: int
) -> None:
    write(output, models[1], 3)
    checkpoints, path = writer(output, models[1]), output.checkpoint_path(4)
    fill_disk(output, path.name)
    checkpoints.write(training_variables(models[1]), state(4, best=1.0, best_epoch=best), (4, 0))
    checkpoints.wait()
    old = output.checkpoint_path(deleted)
    assert log_lines == [f"Deleted the old checkpoint {old}, because the volume is full"]
    assert names(output) == [f"checkpoint-{epoch}.h5" for epoch in range(1, 5) if epoch != deleted]
    assert read_description(path).run == output.run


def test_a_run_without_checkpoints_for_too_long_ends(output: Any, models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(writer_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    checkpoints, variables = writer(output, models[1], failure_seconds=60), training_variables(models[1])
    output.checkpoint_path(3).mkdir()
    checkpoints.write(variables, state(3), (3, 0))
    checkpoints.wait()
    assert checkpoints.problem is None
    assert not checkpoints.is_due
    clock.now += 60
    assert checkpoints.is_due
    checkpoints.write(variables, state(3), (3, 0))
    checkpoints.wait()
    assert f"cannot write the checkpoint {output.checkpoint_path(3)}: Is a directory" in str(checkpoints.problem)
    assert "--checkpoint-failure-seconds" in str(checkpoints.problem)


def test_an_error_of_the_writer_itself_is_logged_and_repeated_too(output: Any, models: Any) -> None:
    checkpoints = writer(output, models[1])
    checkpoints.write(training_variables(models[1])[1:], state(3), (3, 0))  # one variable less than in the layout
    checkpoints.wait()
    assert "IndexError" in log_lines[0]
    write(output, models[1], 3)
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


def test_only_partial_files_that_no_run_writes_are_deleted(tmp_path: Path) -> None:
    interrupted, written = tmp_path / ".partial-1-checkpoint-1.h5", tmp_path / ".partial-2-checkpoint-1.h5"
    for path in (interrupted, written):
        path.write_bytes(b"half")
    os.utime(interrupted, times=(time.time() - 3600,) * 2)
    open_directory(tmp_path, resume=False)
    assert list(tmp_path.glob(".partial-*")) == [written]


def test_a_start_during_a_write_prevents_the_replacement(output: Any) -> None:
    target = output.checkpoint_path(2)
    content = target.read_bytes()

    def write_late() -> None:
        with output.write(target) as path:
            path.write_bytes(b"late")
            open_directory(output.directory, resume=True)

    with pytest.raises(OutputError, match="started later"):
        write_late()
    assert target.read_bytes() == content


def test_a_later_start_owns_the_directory_and_the_earlier_one_writes_no_more(output: Any, models: Any) -> None:
    checkpoints, content = writer(output, models[1]), output.checkpoint_path(2).read_bytes()
    later = open_directory(output.directory, resume=True)
    assert later.run == output.run
    checkpoints.write(training_variables(models[1]), state(2), (2, 0))
    checkpoints.wait()
    assert re.fullmatch(rf"a run on \S+ started later and also writes to {output.directory}, so this run ends; use "
                        "another --dir for each job", str(checkpoints.problem))  # fmt: skip
    with pytest.raises(OutputError, match="started later"):
        output.save_models(models[1], log_lines.append)
    output.finish()
    assert output.checkpoint_path(2).read_bytes() == content
    assert names(output) == ["checkpoint-1.h5", "checkpoint-2.h5"]
    write(later, models[1], 3)
    assert log_lines == []


def test_a_later_attempt_of_the_job_continues_and_an_earlier_one_does_not_start(tmp_path: Path) -> None:
    first = open_directory(tmp_path, resume=True, job="a", attempt=2)
    assert open_directory(tmp_path, resume=True, job="a", attempt=2).run == first.run  # all elastic ranks were lost
    assert open_directory(tmp_path, resume=True, job="a", attempt=3).run == first.run
    with pytest.raises(OutputError, match=r"attempt 3 of this job uses .*; this is attempt 2, which started too late"):
        open_directory(tmp_path, resume=True, job="a", attempt=2)


def test_two_jobs_in_a_directory_do_not_replace_each_other_with_each_attempt(tmp_path: Path) -> None:
    open_directory(tmp_path, resume=True, job="a")
    later = open_directory(tmp_path, resume=True, job="b")
    before = {path: path.read_bytes() for path in tmp_path.glob(".horovodjob-*")}
    with pytest.raises(OutputError, match=r"attempt 1 of the job training/b has replaced this job in .*; use another"):
        open_directory(tmp_path, resume=True, job="a", attempt=2)
    assert {path: path.read_bytes() for path in tmp_path.glob(".horovodjob-*")} == before
    later.finish()
    open_directory(tmp_path, resume=True, job="a", attempt=3)


def test_another_job_does_not_start_while_the_heartbeat_of_the_owner_is_fresh(tmp_path: Path) -> None:
    first = open_directory(tmp_path, resume=True, job="a")
    heartbeat = Heartbeat(tmp_path, first.token).start()
    try:
        before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        for job in ("b", ""):
            with pytest.raises(OutputError, match=r"attempt 1 of the job training/a is active in .*; use another"):
                open_directory(tmp_path, resume=True, job=job)
        assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
        first.check_owner()
        assert open_directory(tmp_path, resume=True, job="a", attempt=2).run == first.run
    finally:
        heartbeat.stop()
    open_directory(tmp_path, resume=True, job="b")


def test_a_job_that_was_killed_does_not_block_another_for_long(tmp_path: Path) -> None:
    first = open_directory(tmp_path, resume=True, job="a")
    heartbeat = Heartbeat(tmp_path, first.token).start()
    past = time.time() - FRESH_SECONDS - 1
    os.utime(heartbeat.path, times=(past, past))
    open_directory(tmp_path, resume=True, job="b")
    heartbeat.stop()


def test_a_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="use another --dir"):
        open_directory(tmp_path / "file", resume=False)


@pytest.mark.parametrize("content", ["", "[]", '{"run": 1, "settings": {}}', '{"run": "a"}'])
def test_a_damaged_run_file_starts_a_new_run(output: Any, tmp_path: Path, content: Any) -> None:
    (tmp_path / ".horovodjob-run.json").write_text(content)
    assert open_directory(tmp_path, resume=True).run != output.run
