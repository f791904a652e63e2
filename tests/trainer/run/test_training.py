"""The program as a job starts it: output, files and exit codes of two ranks."""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import pytest

from horovodjob_trainer.data.formats.digits import FILE
from trainer.support.tensorflow_notice import without_notice
from trainer.support.waiting import TIMEOUT_SECONDS

PLAIN_KERAS = Path(__file__).parent / "programs" / "plain_keras.py"
DIGITS = package_files("horovodjob_trainer.data.formats") / FILE
NUMBER = r"[0-9]+\.[0-9]{4}"
# The default of twelve, and its accuracy, are those of the job that tests/e2e/installation/test_install_page.py runs.
EPOCHS = 2
# An epoch has 1437 / (32 * 2) = 22.45 steps, and a step that contains the end of an epoch belongs to that epoch.
STEPS = [23, 22]


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def digits_run(
    run: Callable[..., Any], fresh_trainer: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Two ranks that train on the digits with the defaults, but for fewer epochs."""
    directory = tmp_path_factory.mktemp("digits") / "made" / "by the trainer"
    return run(2, fresh_trainer("--dataset", "digits", "--epochs", EPOCHS, "--dir", directory)), directory


def test_two_ranks_train_on_the_digits(digits_run: Any) -> None:
    ended, _ = digits_run
    assert ended.code == 0, ended.stderr
    (accuracy,) = re.findall(rf"^Test accuracy: ({NUMBER})$", ended.stdout, re.MULTILINE)
    assert float(accuracy) >= 0.8


def test_two_ranks_compute_the_metrics_of_one_process(digits_run: Any, run: Any, trainer: Any) -> None:
    ended, directory = digits_run
    model = directory / "saved_models" / "keras_digits_trained_model.keras"
    alone = run(1, trainer("evaluate", "--model", model, "--dataset", "digits", "--json"))
    assert alone.code == 0, alone.stderr
    measured = json.loads(alone.stdout.splitlines()[-1])
    for name in ("loss", "accuracy", "top_5_accuracy"):
        (printed,) = re.findall(rf"^Test {name}: ({NUMBER})$", ended.stdout, re.MULTILINE)
        assert measured[name] == pytest.approx(float(printed), abs=1e-4)


def test_only_rank_0_prints_and_prints_complete_lines(digits_run: Any) -> None:
    ended, directory = digits_run
    lines = ended.stdout.splitlines()
    assert lines[0] == "Training digits on 2 ranks with 1 thread each"
    assert lines[1:5] == [
        "x_train shape: (1437, 32, 32, 3)",
        "1437 train samples",
        "360 test samples",
        "Using real-time data augmentation.",
    ]
    scaling = "(sqrt scaling, the default for RMSprop)"
    assert lines[5] == f"Learning rate: 0.0005 of one rank times 1.414 for 2 ranks {scaling}"
    epochs = [line for line in lines if re.match(r"Epoch ./. (\d+)/\1 ", line)]
    metrics = " ".join(f"{name} {NUMBER}" for name in ("loss", "accuracy", "val_loss", "val_accuracy"))
    assert [line.split()[1] for line in epochs] == [f"{epoch}/{EPOCHS}" for epoch in range(1, EPOCHS + 1)]
    for line, steps in zip(epochs, STEPS, strict=True):
        assert re.fullmatch(rf"Epoch ./{EPOCHS} {steps}/{steps} {metrics} [0-9]+ images/s", line)
    assert f"Saved trained model at {directory}/saved_models/keras_digits_trained_model.h5" in lines
    assert len(lines) == len(set(lines))
    assert "\r" not in ended.stdout


def test_libraries_print_nothing(digits_run: Any) -> None:
    assert without_notice(digits_run[0].stderr) == ""


def test_rank_0_writes_the_model_and_a_checkpoint_per_epoch(digits_run: Any) -> None:
    checkpoints = {f"checkpoint-{epoch}.h5" for epoch in range(1, EPOCHS + 1)}
    names = ("keras_digits_trained_model", "keras_digits_trained_model-best")
    models = {f"saved_models/{name}.{suffix}" for name in names for suffix in ("h5", "keras")}
    events = {name for name in files(digits_run[1]) if name.startswith("tensorboard/events.out.tfevents.")}
    assert len(events) == 1
    assert files(digits_run[1]) == checkpoints | models | events | {"progress.jsonl"}


def test_models_and_checkpoints_load_and_continue_training_without_horovod(
    digits_run: Any, run: Callable[..., Any], preloaded_python: list[str]
) -> None:
    ended, directory = digits_run
    (best,) = re.findall(rf"^The best epoch is ([12]) with val_loss {NUMBER}$", ended.stdout, re.MULTILINE)
    paths = [*sorted((directory / "saved_models").iterdir()), directory / f"checkpoint-{EPOCHS}.h5"]
    loaded = run(1, [*preloaded_python, str(PLAIN_KERAS), str(DIGITS), *map(str, paths)])
    assert loaded.code == 0, loaded.stderr
    for path, line in zip(paths, loaded.stdout.splitlines(), strict=True):
        module, name, iterations, accuracy = line.split()
        steps = sum(STEPS[: int(best)] if "-best" in path.name else STEPS)
        assert (module.partition(".")[0], name, int(iterations)) == ("keras", "RMSprop", steps)
        assert float(accuracy) >= 0.8


@pytest.mark.parametrize("flag", ["--epochs=0", "--no-such-flag"])
def test_two_ranks_reject_an_invalid_flag_with_one_sentence_and_exit_code_2(
    run: Callable[..., Any], fresh_trainer: Callable[..., list[str]], flag: str
) -> None:
    # mpirun ends rank 0 when rank 1 exits. A rank 0 on a slow node must still be able to print the error.
    late = ["sh", "-c", '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || sleep 2; exec "$@"', "sh"]
    ended = run(2, [*late, *fresh_trainer("--dataset", "digits", flag)])
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert flag.partition("=")[0] in ended.errors[0]
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


def test_a_damaged_archive_ends_with_one_sentence(
    run: Callable[..., Any], trainer: Callable[..., list[str]], make_archive: Callable[..., str], tmp_path: Path
) -> None:
    make_archive(tmp_path / "a.tar.gz")
    (tmp_path / "a.tar.gz").write_bytes((tmp_path / "a.tar.gz").read_bytes()[:5000])
    ended = run(2, trainer("--dir", tmp_path, "--archive", tmp_path / "a.tar.gz", "--archive-sha256", "any"))
    assert ended.code == 1
    (sentence,) = ended.errors
    assert f"{tmp_path}/a.tar.gz cannot be read: " in sentence
    assert "Traceback" not in ended.stderr


def test_an_output_directory_that_cannot_be_created_is_rejected_before_training(
    run: Callable[..., Any], trainer: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ended = run(1, trainer("--dataset", "digits", "--dir", tmp_path / "file" / "below"))
    assert ended.code == 1
    (sentence,) = ended.errors
    assert f"cannot write to {tmp_path}/file/below: " in sentence


def test_sigterm_ends_a_run_of_one_rank_with_143(
    trainer: Callable[..., list[str]], environment: dict[str, str], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        trainer("--dataset", "digits", "--dir", tmp_path, "--epochs", 100_000, "--log-seconds", 0.01),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Epoch "):
            break
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=TIMEOUT_SECONDS) == 143
    process.stdout.close()
