"""The program as a job starts it: output, files and exit codes of two ranks."""

import re
import shlex
from collections.abc import Callable
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.data.formats.digits import FILE
from stages.settings import ROOT
from support.tutorial.page import blocks
from trainer.support.tensorflow_notice import without_notice

PLAIN_KERAS = Path(__file__).parent / "programs" / "plain_keras.py"
DIGITS = package_files("horovodjob_trainer.data.formats") / FILE
NUMBER = r"[0-9]+\.[0-9]{4}"
# The default of twelve, and its accuracy, are those of the job that tests/e2e/installation/test_install_page.py runs.
LEARNT = 0.5
STEPS = 23  # in the only epoch: 1437 / (32 * 2)


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def digits_run(
    run: Callable[..., Any], fresh_trainer: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Two ranks with the first command of the trainer's page, but for fewer epochs and in a directory of the test."""
    program, flags = blocks(ROOT / "docs" / "trainer.md", "sh")[0].split(" --", 1)
    assert program == "python -m horovodjob_trainer"
    directory = tmp_path_factory.mktemp("digits") / "made" / "by the trainer"
    return run(2, fresh_trainer(*shlex.split(f"--{flags}"), "--epochs", 1, "--dir", directory)), directory


def test_two_ranks_train_on_the_digits_and_rank_0_prints_and_writes(digits_run: Any) -> None:
    ended, directory = digits_run
    assert (ended.code, without_notice(ended.stderr)) == (0, ""), "libraries print nothing"
    lines = ended.stdout.splitlines()
    assert lines[:5] == [
        "Training digits on 2 ranks with 1 thread each",
        "x_train shape: (1437, 32, 32, 3)",
        "1437 train samples",
        "360 test samples",
        "Using real-time data augmentation.",
    ]
    scaling = "(sqrt scaling, the default for RMSprop)"
    assert lines[5] == f"Learning rate: 0.0005 of one rank times 1.414 for 2 ranks {scaling}"
    epochs = [line for line in lines if re.match(r"Epoch ./. (\d+)/\1 ", line)]
    metrics = " ".join(f"{name} {NUMBER}" for name in ("loss", "accuracy", "val_loss", "val_accuracy"))
    (line,) = epochs
    assert re.fullmatch(rf"Epoch 1/1 {STEPS}/{STEPS} {metrics} [0-9]+ images/s", line)
    (accuracy,) = re.findall(rf"^Test accuracy: ({NUMBER})$", ended.stdout, re.MULTILINE)
    assert float(accuracy) >= LEARNT
    assert f"Saved trained model at {directory}/saved_models/keras_digits_trained_model.h5" in lines
    assert len(lines) == len(set(lines))
    assert "\r" not in ended.stdout

    names = ("keras_digits_trained_model", "keras_digits_trained_model-best")
    models = {f"saved_models/{name}.{suffix}" for name in names for suffix in ("h5", "keras")}
    events = {name for name in files(directory) if name.startswith("tensorboard/events.out.tfevents.")}
    assert len(events) == 1
    assert files(directory) == models | events | {"checkpoint-1.h5", "progress.jsonl"}


def test_models_and_checkpoints_load_and_continue_training_without_horovod(
    digits_run: Any, run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    ended, directory = digits_run
    assert re.search(rf"^The best epoch is 1 with val_loss {NUMBER}$", ended.stdout, re.MULTILINE)
    models = ("keras_digits_trained_model.h5", "keras_digits_trained_model-best.keras")
    paths = [*(directory / "saved_models" / name for name in models), directory / "checkpoint-1.h5"]
    loaded = run(1, [*preloaded_python, str(PLAIN_KERAS), str(DIGITS), *map(str, paths)])
    assert loaded.code == 0, loaded.stderr
    for path, line in zip(paths, loaded.stdout.splitlines(), strict=True):
        module, name, iterations, accuracy = line.split()
        assert (module.partition(".")[0], name, int(iterations)) == ("keras", "RMSprop", STEPS)
        assert float(accuracy) >= LEARNT, path


def test_two_ranks_reject_an_invalid_flag_with_one_sentence_and_exit_code_2(
    run: Callable[..., Any], fresh_trainer: Callable[..., list[str]]
) -> None:
    # mpirun ends rank 0 when rank 1 exits. A rank 0 on a slow node must still be able to print the error.
    late = ["sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 2; exec "$@"', "sh"]
    ended = run(2, [*late, *fresh_trainer("--dataset", "digits", "--no-such-flag")])
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert "--no-such-flag" in ended.errors[0]
    assert ended.stdout.startswith("---") or not ended.stdout  # the message of mpirun
    assert "Traceback" not in ended.stderr


def test_help_is_printed_once(run: Callable[..., Any], fresh_trainer: Callable[..., list[str]]) -> None:
    ended = run(2, fresh_trainer("--help"))
    assert (ended.code, ended.stdout.count("usage:")) == (0, 1)


def test_data_that_only_another_node_lacks_end_with_one_sentence(
    run: Callable[..., Any], trainer: Callable[..., list[str]], make_archive: Callable[..., str], tmp_path: Path
) -> None:
    make_archive(tmp_path / "archive-0")
    flags = ("--dir", tmp_path / "out", "--archive-sha256", "any", "--archive")
    command = " ".join(f"'{word}'" for word in trainer(*flags))
    program = f"exec {command} '{tmp_path}/archive-'$OMPI_COMM_WORLD_RANK"
    ended = run(2, ["sh", "-c", program])
    assert ended.code == 1
    remedy = "give another --archive"
    assert ended.errors == [f"horovodjob_trainer: rank 1: {tmp_path}/archive-1 does not exist; {remedy}"]
    assert "Traceback" not in ended.stderr
