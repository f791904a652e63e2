"""A pytest plugin: in a run of the whole folder every reason and every event of the vocabulary must occur."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from horovodjob.api.constants import EventReason, Reason

KEY = "horovodjob-occurrences"
EXPECTED = frozenset({*(f"reason {word}" for word in Reason), *(f"event {word}" for word in EventReason)})


class ReasonCoverage:
    """Collects what jobs and events said in this process and in the workers of pytest-xdist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._missing: list[str] = []

    def add(self, *, reasons: Iterable[str], events: Iterable[str]) -> None:
        """Adds the reasons of conditions and errors, and those of events."""
        self._seen |= {f"reason {word}" for word in reasons} | {f"event {word}" for word in events}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Adds what a worker of pytest-xdist saw."""
        self._seen |= set(getattr(node, "workeroutput", {}).get(KEY, ()))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fails a run of the whole folder in which some of them did not occur."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY] = sorted(self._seen)
        elif exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and self._is_whole(session.config):
            self._missing = sorted(EXPECTED - self._seen)
            if self._missing:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names the missing ones."""
        if self._missing:
            terminalreporter.section("reasons and events that occurred in no test", red=True)
            terminalreporter.write_line("\n".join(self._missing))

    def _is_whole(self, config: pytest.Config) -> bool:
        """Whether nothing of the folder was left out on the command line."""
        folders = [Path(config.invocation_params.dir, word).resolve() for word in config.args if "::" not in word]
        narrowed = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
        return any(self._folder.is_relative_to(folder) for folder in folders) and not any(
            config.getoption(name, None) for name in narrowed
        )
