"""A start with other settings or other data than the unfinished run in its directory."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, open_output_directory
from horovodjob_trainer.checkpoint.program import TRAINER
from horovodjob_trainer.checkpoint.run_selection import RunSettings
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError
from horovodjob_trainer.launch import Launch

SETTINGS = {"model": "tutorial", "learning_rate": 0.1, "data": "100 images"}
LOWER_RATE, LESS_DATA, OTHER_MODEL = {"learning_rate": 0.01}, {"data": "99 images"}, {"model": "resnet18"}
OWN = """
import keras

def small(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])
"""

log_lines: list[str] = []


@pytest.fixture(autouse=True)
def clear_log_lines() -> None:
    log_lines.clear()


def start(directory: Path, changed: Any = None, *, attempt: int = 1, resume: str = "auto", job: str = "a") -> Any:
    return open_output_directory(
        directory,
        "model",
        RunSettings(SETTINGS | (changed or {}), frozenset({"learning_rate", "data"})),
        TRAINER,
        launch=Launch(attempt=attempt, job=job, job_name=f"training/{job}"),
        resume=resume,
        log=log_lines.append,
    )


def write_checkpoint(output: OutputDirectory, epoch: int) -> bytes:
    state = RunState(epochs=9, epoch_examples=100, first_size=1, position=100 * epoch)
    path = output.checkpoint_path(epoch)
    with h5py.File(path, "w") as file:
        file.attrs["horovodjob"] = json.dumps({"run": output.run, "state": state.to_json(), "datasets": []})
    return path.read_bytes()


def files(directory: Path) -> dict[str, bytes]:
    paths = directory.rglob("checkpoint-*.h5")
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


@pytest.fixture
def unfinished(tmp_path: Path) -> OutputDirectory:
    """A run with the checkpoints of two epochs."""
    output: OutputDirectory = start(tmp_path)
    for epoch in (1, 2):
        write_checkpoint(output, epoch)
    return output


@pytest.mark.parametrize("changed", [LOWER_RATE, LESS_DATA])
def test_a_later_attempt_with_a_change_ends_with_the_choices_and_changes_no_file(
    unfinished: Any, tmp_path: Path, changed: Any
) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OutputError) as raised:
        start(tmp_path, changed, attempt=2)
    ((name, value),) = changed.items()
    assert f"{name} was {SETTINGS[name]} and is {value}. " in str(raised.value)
    assert "--resume continue" in str(raised.value)
    assert "--resume never" in str(raised.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert start(tmp_path, attempt=2).run == unfinished.run


def test_a_run_continues_with_a_changed_rate_on_request_and_then_by_itself(unfinished: Any, tmp_path: Path) -> None:
    assert start(tmp_path, LOWER_RATE, attempt=2, resume="continue").run == unfinished.run
    assert log_lines == ["Continuing the unfinished run with other settings: learning_rate was 0.1 and is 0.01"]
    assert start(tmp_path, LOWER_RATE, attempt=3).run == unfinished.run


@pytest.mark.parametrize(("attempt", "resume"), [(1, "continue"), (2, "auto")])
def test_a_run_does_not_continue_with_another_model(unfinished: Any, tmp_path: Path, attempt: int, resume: str) -> None:
    with pytest.raises(OutputError, match="It cannot continue with another model: start it with the earlier settings"):
        start(tmp_path, OTHER_MODEL | LOWER_RATE, attempt=attempt, resume=resume)


def test_a_new_job_with_other_settings_overwrites_no_checkpoint_and_the_earlier_settings_resume_the_run(
    unfinished: Any, tmp_path: Path
) -> None:
    before = files(tmp_path)
    other = start(tmp_path, LOWER_RATE, job="b")
    write_checkpoint(other, 1)
    assert f"now in {tmp_path}/earlier-runs/{unfinished.run}; a start with its settings resumes it" in log_lines[0]
    folder = f"earlier-runs/{unfinished.run}"
    assert {
        name.removeprefix(f"{folder}/"): content for name, content in files(tmp_path).items() if folder in name
    } == before
    assert start(tmp_path, job="c").run == unfinished.run
    assert {name: content for name, content in files(tmp_path).items() if "/" not in name} == before
    assert f"earlier-runs/{other.run}/checkpoint-1.h5" in files(tmp_path)
    assert start(tmp_path, LOWER_RATE, job="d").run == other.run


def test_a_new_run_overwrites_no_checkpoint_of_a_finished_run_nor_one_that_cannot_be_read(
    unfinished: Any, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint-3.h5").write_bytes(b"cut")
    before = files(tmp_path)
    unfinished.finish()
    later = start(tmp_path, job="b")
    assert {name.rpartition("/")[2]: content for name, content in files(tmp_path).items()} == before
    assert all(name.startswith("earlier-runs/") for name in files(tmp_path))
    assert later.run != unfinished.run


def test_a_run_that_was_discarded_on_request_is_not_resumed_by_its_settings(unfinished: Any, tmp_path: Path) -> None:
    later = start(tmp_path, attempt=2, resume="never")
    assert len(files(tmp_path)) == 2
    later.finish()
    assert start(tmp_path, job="b").run not in (unfinished.run, later.run)


def test_a_change_before_the_first_checkpoint_loses_nothing_and_starts_a_new_run(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert start(tmp_path, LOWER_RATE, attempt=2).run != first.run
    assert "it has no checkpoint yet" in log_lines[0]


def test_a_later_attempt_with_a_damaged_run_file_ends_with_a_sentence(unfinished: Any, tmp_path: Path) -> None:
    (tmp_path / ".horovodjob-run.json").write_text("{")
    with pytest.raises(OutputError, match=r"\.horovodjob-run\.json is damaged.*--resume never"):
        start(tmp_path, attempt=2)


@pytest.mark.parametrize("epochs", [0, 3])
def test_a_run_continues_at_the_same_share_of_the_epoch_of_changed_data(epochs: int) -> None:
    state = RunState(epochs=9, epoch_examples=1000, first_size=2, position=1000 * epochs + 500, step=40)
    state.use_data(900)
    assert (state.epoch, state.position - 900 * epochs, state.total) == (epochs, 450, 8100)


def test_velocities_of_a_changed_rate_are_corrected(tmp_path: Path) -> None:
    import keras

    from horovodjob_trainer.run.optimization.learning_rate import LearningRate

    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)  # the rate of the last step
    rate = LearningRate(optimizer, previous=0.05)
    rate.set(0.05)
    assert float(rate.velocity_factor) == pytest.approx(0.1)


def test_a_damaged_image_does_not_cost_the_run(
    run: Callable[..., Any], trainer: Callable[..., list[str]], folders: Callable[..., Path], tmp_path: Path
) -> None:
    images = tmp_path / "images"
    folders(images / "test", cat=2, dog=2)
    cut_off = folders(images / "train", cat=24, dog=24) / "dog" / "020.png"
    cut_off.write_bytes(cut_off.read_bytes()[:-30])
    (tmp_path / "own.py").write_text(OWN)
    flags = ("--dataset", "images", "--data", images, "--image-size", 32, "--cache", "none", "--model", "own:small",
             "--batch-size", 2, "--epochs", 3, "--checkpoint-steps", 1, "--threads", 1, "--tensorboard", "none",
             "--dir", tmp_path / "out")  # fmt: skip

    def attempt(number: int, ranks: int, *others: object) -> Any:
        variables = {"PYTHONPATH": str(tmp_path), "HOROVODJOB_ATTEMPT": str(number), "HOROVODJOB_UID": "1-2-3"}
        return run(ranks, trainer(*flags, *others), variables)

    first = attempt(1, 2)
    assert first.code == 1
    (sentence,) = first.errors
    (bad,) = re.findall(r"(\S+) cannot be read: it is not a complete .*--resume continue", sentence)
    before = files(tmp_path / "out")
    assert before
    Path(bad).unlink()

    second = attempt(2, 1, "--learning-rate", 0.01)
    assert second.code == 1
    (sentence,) = second.errors
    assert re.search(r"has different settings: .*data was images train 48x.* and is images train 47x", sentence)
    assert "--resume never" in sentence
    assert files(tmp_path / "out") == before

    third = attempt(3, 1, "--resume", "continue", "--learning-rate", 0.01)
    assert third.code == 0, third.stderr
    assert re.search(r"^Attempt 3: resuming after epoch 0 and [0-9]+ step", third.stdout, re.MULTILINE)
