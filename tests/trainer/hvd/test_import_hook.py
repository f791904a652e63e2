"""Unchanged scripts for the Keras layers of Horovod: the import hook synchronizes their ranks."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
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
def directory(run: Callable[..., Any], preloaded_python: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks write when they run scripts that are written for Horovod alone."""
    directory = tmp_path_factory.mktemp("stock")
    done = run(2, [*preloaded_python, str(PROGRAMS / "run_scripts.py"), str(directory), *map(str, SCRIPTS)])
    assert done.code == 0, done.stderr
    return directory


@pytest.mark.parametrize(
    "saved",
    [
        "stock_silent/silent",
        *("stock_loops/fit", "stock_loops/history", "stock_loops/loaded", "stock_loops/optimizer"),
        *("tensorflow2_keras_mnist/weights", "tensorflow2_mnist/weights"),
    ],
)
def test_the_hook_synchronizes_with_every_import_of_horovod(directory: Path, saved: str) -> None:
    first, second = (np.load(directory / f"{saved}-{rank}.npz") for rank in range(2))
    assert sorted(first) == sorted(second)
    assert all(np.array_equal(first[key], second[key]) for key in first)


def test_the_scripts_have_the_learning_rates_and_files_of_horovod(directory: Path) -> None:
    rates = np.load(directory / "stock_loops" / "history-0.npz")["lr"]
    np.testing.assert_allclose(rates, [0.0015, 0.002, 0.002], rtol=1e-6)
    assert (directory / "tensorflow2_keras_mnist" / "checkpoint-2.h5").exists()
    assert (directory / "tensorflow2_mnist" / "checkpoints-1.index").exists()


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
