"""Fixtures of the tests of scripts of 2018."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def preloaded_keras2(fork_server: Callable[..., AbstractContextManager[list[str]]]) -> Iterator[list[str]]:
    """Python in a process that has TensorFlow with Keras 2 imported."""
    with fork_server("tensorflow", "h5py", TF_USE_LEGACY_KERAS="1") as command:
        yield command


@pytest.fixture(scope="session")
def compat(preloaded_keras2: list[str]) -> Callable[..., list[str]]:
    """The command line that runs a script unchanged, with TensorFlow imported already."""

    def command(*arguments: object) -> list[str]:
        return [*preloaded_keras2, "-m", "horovodjob_trainer.compat", *map(str, arguments)]

    return command


@pytest.fixture(scope="session")
def fresh_compat() -> Callable[..., list[str]]:
    """The command line that runs a script unchanged, as a job starts it."""

    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-m", "horovodjob_trainer.compat", *map(str, arguments)]

    return command


@pytest.fixture(scope="session")
def tutorial() -> Path:
    """The tutorial's script, as it was published."""
    return HERE / "tutorial" / "cifar_cnn_distributed.py"


@pytest.fixture(scope="session")
def programs() -> Path:
    """Other scripts in the style of 2018."""
    return HERE / "programs"
