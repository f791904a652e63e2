"""What the tests of old scripts share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def compat() -> Callable[..., list[str]]:
    """The command line that runs a script unchanged."""

    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-m", "horovodjob_trainer.compat", *map(str, arguments)]

    return command


@pytest.fixture(scope="session")
def tutorial() -> Path:
    """The tutorial's script, as it was published."""
    return HERE / "tutorial" / "cifar_cnn_distributed.py"


@pytest.fixture(scope="session")
def programs() -> Path:
    """Scripts of our own in the style of that time."""
    return HERE / "programs"
