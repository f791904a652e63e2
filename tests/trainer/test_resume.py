"""A run that is killed or terminated resumes with bitwise the same result as an uninterrupted run."""

import re
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from trainer.background_job import Job

MODEL = "saved_models/keras_cifar10_trained_model.h5"
CHECKPOINT_STEPS, STEPS_PER_EPOCH, EPOCHS, BATCH, ROWS = 3, 10, 5, 8, 32


@pytest.fixture(scope="module")
def archive(make_archive: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "archive.tar.gz"
    make_archive(path, rows=ROWS)  # in each of five files
    return path


@pytest.fixture(scope="module")
def flags(archive: Path) -> tuple[object, ...]:
    data = ("--archive", archive, "--archive-sha256", "any")
    exact = ("--deterministic", "--threads", 1, "--checkpoint-steps", CHECKPOINT_STEPS, "--epochs", EPOCHS)
    return (*data, *exact, "--batch-size", BATCH, "--learning-rate", 2e-5, "--dir")


@pytest.fixture(scope="module")
def command(trainer: Callable[..., list[str]], flags: tuple[object, ...]) -> Callable[[Path], list[str]]:
    return partial(trainer, *flags)


@pytest.fixture
def started(start: Callable[[list[str]], Job], command: Callable[[Path], list[str]], tmp_path: Path) -> Job:
    return start(command(tmp_path))


@pytest.fixture(scope="module")
def uninterrupted(run: Callable[..., Any], command: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp("uninterrupted")
    return run(2, command(directory)), directory


def content(path: Path) -> dict[str, Any]:
    """Every array of an .h5 file: weights and the optimizer's variables."""
    found = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(take)
    return found


def assert_same_bits(first: Path, second: Path) -> None:
    one, other = content(first), content(second)
    assert one.keys() == other.keys()
    assert len(one) > 20
    assert [name for name in one if not np.array_equal(one[name], other[name])] == []


def epoch_lines(output: str) -> list[str]:
    """The log lines at the end of each epoch, without the speed."""
    lines = [line for line in output.splitlines() if f" {STEPS_PER_EPOCH}/{STEPS_PER_EPOCH} " in line]
    return [re.sub(" [0-9]+ images/s$", "", line) for line in lines]


def test_a_run_resumes_after_a_rank_was_killed_between_checkpoints(
    started: Job, uninterrupted: tuple[Any, Path], run: Callable[..., Any], command: Any, tmp_path: Path
) -> None:
    started.wait_for("checkpoint-1-8.h5")
    started.send_signal(1, signal.SIGKILL)
    code, _ = started.ended()
    assert code != 0
    newest = max(tmp_path.glob("checkpoint-*.h5"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-5000])

    resumed = run(2, command(tmp_path), {"HOROVODJOB_ATTEMPT": "2"})
    assert resumed.code == 0, resumed.stderr
    assert f"Skipping the checkpoint {newest}, which cannot be read: " in resumed.stdout
    assert re.search(r"^Attempt 2: resuming after epoch [1-4]( and [0-9]+ steps?)?$", resumed.stdout, re.MULTILINE)
    assert_same_bits(tmp_path / MODEL, uninterrupted[1] / MODEL)
    # The first logged epoch is incomplete. Later validations equal those of the uninterrupted run.
    validations = [line.partition("val_loss")[2] for line in epoch_lines(resumed.stdout)]
    assert (
        validations
        == [line.partition("val_loss")[2] for line in epoch_lines(uninterrupted[0].stdout)][-len(validations) :]
    )


def test_sigterm_to_any_rank_writes_a_checkpoint_of_the_current_step(
    started: Job, uninterrupted: tuple[Any, Path], run: Callable[..., Any], command: Any, tmp_path: Path
) -> None:
    started.wait_for("checkpoint-0-3.h5")
    started.send_signal(1, signal.SIGTERM)
    code, output = started.ended()
    assert code == 143, output
    (step,) = re.findall(r"^SIGTERM: stopped after step ([0-9]+), ", output, re.MULTILINE)
    epoch, inside = divmod(int(step), STEPS_PER_EPOCH)
    assert (tmp_path / (f"checkpoint-{epoch}-{inside}.h5" if inside else f"checkpoint-{epoch}.h5")).exists()

    resumed = run(2, command(tmp_path))
    assert resumed.code == 0, resumed.stderr
    words = f"epoch {epoch}" + (f" and {inside} step{'' if inside == 1 else 's'}" if inside else "")
    assert f"Attempt 1: resuming after {words}\n" in resumed.stdout
    assert_same_bits(tmp_path / MODEL, uninterrupted[1] / MODEL)


def test_a_rank_that_waits_for_a_stopped_rank_ends_on_sigterm(
    start: Callable[[list[str]], Job],
    fresh_trainer: Callable[..., list[str]],
    flags: tuple[object, ...],
    tmp_path: Path,
) -> None:
    started = start(fresh_trainer(*flags, tmp_path))
    started.wait_for("checkpoint-0-3.h5")
    started.send_signal(0, signal.SIGSTOP)
    started.send_signal(1, signal.SIGTERM)
    code, _ = started.ended()
    assert code == 143
