"""Unchanged scripts for the Keras layers of Horovod: the import hook synchronizes their ranks."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parent / "examples"
SCRIPTS = [
    PROGRAMS / "stock_loops.py",
    EXAMPLES / "tensorflow2_keras_mnist.py",
    EXAMPLES / "tensorflow2_mnist.py",
    PROGRAMS / "stock_silent.py",  # the last one, because its ranks have the same seed
]
TRAINER = Path(__file__).parents[3] / "trainer"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages of this one, in which the hook is enabled."""
    directory = tmp_path_factory.mktemp("hooked")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    (site,) = directory.glob("lib/python3.*/site-packages")
    (site / "a.pth").write_text(f"{sysconfig.get_path('purelib')}\n{TRAINER}\n")
    subprocess.run([str(python), "-m", "horovodjob_trainer.import_hook", "enable"], check=True)
    return python


@pytest.fixture(scope="module")
def hooked(interpreter: Path, fork_server: Callable[..., Any]) -> Iterator[list[str]]:
    """That Python in a process that has TensorFlow imported."""
    with fork_server("tensorflow", python=str(interpreter)) as command:
        yield command


@pytest.fixture(scope="module")
def ran(
    run: Callable[..., Any], hooked: list[str], preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """The directory of a script that two ranks have run, with or without the hook."""
    directories: dict[bool, Path] = {}

    def directory_of(script: str, *, hook: bool = True) -> Path:
        if hook not in directories:
            directories[hook] = tmp_path_factory.mktemp("stock")
            python, scripts = (hooked, SCRIPTS) if hook else (preloaded_python, SCRIPTS[-1:])
            done = run(2, [*python, str(PROGRAMS / "run_scripts.py"), str(directories[hook]), *map(str, scripts)])
            assert done.code == 0, done.stderr
        return directories[hook] / script

    return directory_of


def are_equal(directory: Path, name: str) -> bool:
    """Whether both ranks have saved the same arrays under a name."""
    first, second = (np.load(directory / f"{name}-{rank}.npz") for rank in range(2))
    assert sorted(first) == sorted(second)
    return all(np.array_equal(first[key], second[key]) for key in first)


def test_the_layer_of_horovod_does_not_synchronize_and_reports_no_error(ran: Callable[..., Path]) -> None:
    assert not are_equal(ran("stock_silent", hook=False), "silent")


def test_the_hook_synchronizes_the_same_script(ran: Callable[..., Path]) -> None:
    assert are_equal(ran("stock_silent"), "silent")


@pytest.mark.parametrize("name", ["fit", "loaded", "tape", "optimizer", "history"])
def test_the_hook_synchronizes_with_every_import_of_horovod(ran: Callable[..., Path], name: str) -> None:
    assert are_equal(ran("stock_loops"), name)


def test_the_learning_rate_is_warmed_up_and_decays_as_documented(ran: Callable[..., Path]) -> None:
    rates = np.load(ran("stock_loops") / "history-0.npz")["lr"]
    np.testing.assert_allclose(rates, [0.0015, 0.002, 0.002], rtol=1e-6)


@pytest.mark.parametrize(
    ("example", "file"),
    [("tensorflow2_keras_mnist", "checkpoint-2.h5"), ("tensorflow2_mnist", "checkpoints-1.index")],
)
def test_scripts_with_the_shape_of_the_examples_of_horovod_run_and_synchronize(
    ran: Callable[..., Path], example: str, file: str
) -> None:
    assert are_equal(ran(example), "weights")
    assert (ran(example) / file).exists()


def output_of(interpreter: Path, code: str, **environment: str) -> str:
    done = subprocess.run(
        [str(interpreter), "-c", code], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_hook_adds_only_one_small_module_to_a_start(interpreter: Path) -> None:
    loaded = set(output_of(interpreter, "import sys; print(*sys.modules)").split())
    assert "horovodjob_trainer.import_hook" in loaded
    assert not {"typing", "importlib.util", "importlib.metadata", "tensorflow", "keras", "horovod"} & loaded


def test_the_hook_is_inactive_with_keras_2_and_when_it_is_disabled(interpreter: Path) -> None:
    code = "import importlib.util as u; import horovod; print(type(u.find_spec('horovod.keras').loader).__name__)"
    remove = "import horovodjob_trainer.import_hook as hook; hook.remove(); "
    keras2 = (
        "import sys, types; sys.modules['keras'] = keras = types.ModuleType('keras'); keras.__version__ = '2.18.0'; "
    )
    assert output_of(interpreter, code) == "_ReplacementLoader\n"
    original = "SourceFileLoader\n"
    assert output_of(interpreter, code, HOROVODJOB_STOCK_HOROVOD="1") == original
    assert output_of(interpreter, code, TF_USE_LEGACY_KERAS="1") == original
    assert output_of(interpreter, remove + code) == original
    assert output_of(interpreter, keras2 + code) == original


def test_the_hook_can_be_enabled_twice_and_disabled(interpreter: Path) -> None:
    for action, count in (("enable", 1), ("disable", 0), ("disable", 0), ("enable", 1)):
        command = [str(interpreter), "-m", "horovodjob_trainer.import_hook", action]
        assert not subprocess.run(command, check=True, capture_output=True).stderr
        assert len(list(interpreter.parents[1].rglob("horovodjob_stock_imports.pth"))) == count
    without_action = "import runpy; runpy.run_module('horovodjob_trainer.import_hook', run_name='__main__')"
    assert "usage" in output_of(interpreter, without_action)
