"""The unchanged script of Microsoft from 2018, run by real ranks: its files and the log of its patches."""

import hashlib
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stages.settings import ROOT
from support.tutorial.page import blocks
from trainer.reporting.operator_server import OperatorServer
from trainer.support.tensorflow_notice import without_notice

PUBLISHED_SHA256 = "f2196416e48ce7e022db65223e964f2982e42079ca3ac57e0289b4087a9feac0"
MODEL = "saved_models/keras_cifar10_trained_model.h5"
PATCHES = "horovodjob_trainer.compat: patched: "
UNUSED_CALLBACKS = """
import horovod.keras as hvd, keras, numpy

hvd.init()
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print("CALLED"))]
model.fit(numpy.zeros((4, 2)), numpy.zeros((4, 1)), verbose=0)
"""


@dataclass(frozen=True, slots=True)
class Trained:
    """A run of two ranks in a directory; `weights` has a digest of model and optimizer for each rank."""

    directory: Path
    output: str
    weights: dict[str, str]


@pytest.fixture(scope="module")
def archive(make_archive: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("archive") / "cifar.tar.gz"
    make_archive(path, rows=12)
    return path


@pytest.fixture(scope="module")
def operator() -> Iterator[OperatorServer]:
    server = OperatorServer()
    yield server
    server.server.shutdown()


@pytest.fixture(scope="module")
def train(run: Callable[..., Any], archive: Path, tutorial: Path, programs: Path) -> Callable[..., Trained]:
    """Two epochs of two steps on two ranks; each rank prints a digest of its final weights."""

    def trained(
        compat: Callable[..., list[str]], directory: Path, output: str, *options: str, ranks: int = 2, **others: str
    ) -> Trained:
        observed = compat(*options, programs / "observe.py", tutorial, "--dir", output)
        variables = {
            "TRAINER_ARCHIVE": str(archive),
            "TRAINER_ARCHIVE_SHA256": "any",
            "TRAINER_MAX_EPOCHS": "2",
        } | others
        ended = run(ranks, ["sh", "-c", f"cd {directory} && exec {' '.join(observed)}"], variables)
        assert ended.code == 0, ended.stderr
        weights = dict(re.findall(r"^OBSERVED (\d) (\w+)$", ended.stdout, re.MULTILINE))
        return Trained(directory, ended.stdout + ended.stderr, weights)

    return trained


@pytest.fixture(scope="module")
def patched(
    train: Callable[..., Trained],
    compat: Callable[..., list[str]],
    operator: OperatorServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Trained:
    directory = tmp_path_factory.mktemp("patched")
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("secret-token")
    progress = {"HOROVODJOB_PROGRESS_URL": operator.url, "HOROVODJOB_PROGRESS_TOKEN_FILE": str(token)}
    return train(compat, directory, str(directory), **progress)


def test_the_script_is_the_one_that_was_published(tutorial: Path) -> None:
    assert hashlib.sha256(tutorial.read_bytes()).hexdigest() == PUBLISHED_SHA256


def test_two_ranks_end_equal_with_one_set_of_files_the_progress_and_a_line_for_each_patch(
    patched: Trained, operator: OperatorServer
) -> None:
    assert set(patched.weights) == {"0", "1"}
    assert patched.weights["0"] == patched.weights["1"]
    found = {str(path.relative_to(patched.directory)) for path in patched.directory.rglob("*") if path.is_file()}
    assert found == {"checkpoint-1.h5", "checkpoint-2.h5", MODEL}
    for text in ("60 train samples", "12 test samples", "Using real-time data augmentation.", "Test accuracy: "):
        assert patched.output.count(text) == 2

    last = operator.reports[-1][1]
    assert (last["progress"], last["epoch"], last["epochs"], last["step"], last["stepsPerEpoch"]) == (1.0, 2, 2, 2, 2)
    assert [epoch["epoch"] for epoch in last["history"]] == [1, 2]
    for epoch in last["history"]:
        assert set(epoch["metrics"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
        assert epoch["learningRate"] > 0

    logged = [line.removeprefix(PATCHES) for line in patched.output.splitlines() if line.startswith(PATCHES)]
    about_callbacks = [
        line for line in logged if "'callbacks' (line 82: Broadcast" in line and "line 135 starts" in line
    ]
    about_saving = [line for line in logged if f"every rank write {patched.directory / MODEL}" in line]
    assert len(about_callbacks) == len(about_saving) == 1
    # Whether two ranks create the directory at the same time depends on chance.
    assert len([line for line in logged if "another rank may have created it" not in line]) == 2


def test_the_model_loads_in_keras_2_with_its_optimizer_and_in_keras_3(
    patched: Trained, run: Callable[..., Any], preloaded_python: list[str], programs: Path
) -> None:
    files = [str(patched.directory / name) for name in ("checkpoint-2.h5", MODEL)]
    ended = run(1, [*preloaded_python, str(programs / "load.py"), *files])
    assert ended.code == 0, ended.stderr
    loaded = re.findall(r"LOADED (\d) (.*)", ended.stdout)
    assert sorted(version for version, _ in loaded) == ["2", "2", "3", "3"]
    assert len({prediction for _, prediction in loaded}) == 1
    # Two epochs of two steps, the learning rate of two ranks, and a moving average for each of the 12 weights.
    assert "OPTIMIZER RMSprop 4 0.0002 1e-06 13" in ended.stdout


def test_as_it_is_a_script_is_not_patched(
    run: Callable[..., Any], compat: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(UNUSED_CALLBACKS)
    for options, called in ((("--as-is",), 0), ((), 1)):
        ended = run(1, compat(*options, tmp_path / "script.py"))
        assert (ended.code, ended.stdout.count("CALLED")) == (0, called), ended.stderr
        assert ended.stderr.count(PATCHES) == called


def test_digits_replace_cifar10_without_a_network(
    run: Callable[..., Any], compat: Callable[..., list[str]], tutorial: Path, tmp_path: Path
) -> None:
    """With the first command of the page, of which the second one is the same on two ranks."""
    one, two = blocks(ROOT / "docs" / "tutorial-script.md", "sh")[0].splitlines()
    assert two == f"mpirun -np 2 {one}"
    program = "python -m horovodjob_trainer.compat "
    assert one.startswith(program)
    options = shlex.split(one.removeprefix(program).replace("--max-epochs 2", "--max-epochs 1"))
    shutil.copy(tutorial, tmp_path)
    ended = run(1, ["sh", "-c", f"cd {tmp_path} && exec {' '.join(compat(*options))}"])
    assert ended.code == 0, ended.stderr
    assert "x_train shape: (1437, 32, 32, 3)" in ended.stdout
    assert without_notice(ended.stderr).startswith(f"{PATCHES}the script never passes")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1.h5", tutorial.name, "out"]
    assert (tmp_path / "out" / MODEL).stat().st_mtime >= (tmp_path / "checkpoint-1.h5").stat().st_mtime


def test_a_rank_that_hangs_is_named_until_the_deadline(
    start: Callable[..., Any],
    compat: Callable[..., list[str]],
    archive: Path,
    tutorial: Path,
    programs: Path,
    tmp_path: Path,
) -> None:
    stopped = compat(programs / "stopped.py", tutorial, "--dir", tmp_path)
    variables = {"TRAINER_ARCHIVE": str(archive), "TRAINER_ARCHIVE_SHA256": "any"}
    watch = {"HOROVODJOB_POD": "pod", "HOROVODJOB_PROGRESS_DEADLINE": "20"}
    code, output = start(["sh", "-c", f"cd {tmp_path} && exec {' '.join(stopped)}"], 2, variables | watch).ended()
    assert code == 137
    assert ": rank 1 on pod is stopped; the attempt ends after 20 s without a step" in output
