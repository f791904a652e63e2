"""A pytest plugin: a failed test is named at once, and the end of a process of tests interrupts the run."""

from typing import Any

import pytest


class Failures:
    """What a long run shows of its failures before its end, which a hang or a timeout can prevent."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._has_crashed = config, False

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        """Name a failed test, with its error."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal:
            crash = getattr(report.longrepr, "reprcrash", None)
            error = crash.message.splitlines()[0] if crash else report.longreprtext.rstrip().rpartition("\n")[2]
            terminal.write_line(f"\n{report.nodeid} failed: {error}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: Any) -> None:
        """A process of pytest-xdist has ended: its other tests did not run."""
        self._has_crashed |= bool(error)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Replace the exit code of a failed test."""
        if self._has_crashed:
            session.exitstatus = pytest.ExitCode.INTERRUPTED
