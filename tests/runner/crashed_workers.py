"""A pytest plugin: a process of tests that ends, such as after a hang, ends the run, with an exit code of its own."""

from typing import Any

import pytest


class CrashedWorkers:
    """Makes the run an interrupted one: tests that did not run have not passed."""

    def __init__(self) -> None:
        self._has_crashed = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: Any) -> None:
        """A process of pytest-xdist has ended."""
        self._has_crashed |= bool(error)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Replace the exit code of a failed test."""
        if self._has_crashed:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
