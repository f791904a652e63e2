"""A pytest plugin: a run of the whole folder must see every reason and event, and use every right on queues."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from horovodjob.api.constants import EventReason, Reason
from support.control_plane.operator_control_plane import QUEUE_RIGHTS

KEY = "horovodjob-occurrences"


def expected() -> frozenset[str]:
    """All reasons, events and rights on queues."""
    roles = [each for each in yaml.safe_load_all(QUEUE_RIGHTS.read_text()) if each["kind"] == "ClusterRole"]
    rules = [rule for role in roles for rule in role["rules"]]
    rights = (f"right {verb} {resource}" for rule in rules for verb in rule["verbs"] for resource in rule["resources"])
    return frozenset({*(f"reason {word}" for word in Reason), *(f"event {word}" for word in EventReason), *rights})


class ReasonCoverage:
    """Collects reasons, events and used rights in this process and in the workers of pytest-xdist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._missing: list[str] = []

    def add(self, *, reasons: Iterable[str], events: Iterable[str], requests: Iterable[str]) -> None:
        """Adds the reasons of conditions and errors, those of events, and requests as verb and resource."""
        self._seen |= {f"reason {word}" for word in reasons} | {f"event {word}" for word in events}
        self._seen |= {f"right {request}" for request in requests}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Adds what a worker of pytest-xdist collected."""
        self._seen |= set(getattr(node, "workeroutput", {}).get(KEY, ()))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fails a run of the whole folder in which one of them did not occur."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[KEY] = sorted(self._seen)
        elif exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and self._is_whole(session.config):
            self._missing = sorted(expected() - self._seen)
            if self._missing:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints what is missing."""
        if self._missing:
            terminalreporter.section("what occurred in no test", red=True)
            terminalreporter.write_line("\n".join(self._missing))

    def _is_whole(self, config: pytest.Config) -> bool:
        """Whether the command line selects the whole folder."""
        folders = [Path(config.invocation_params.dir, word).resolve() for word in config.args if "::" not in word]
        narrowed = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
        return any(self._folder.is_relative_to(folder) for folder in folders) and not any(
            config.getoption(name, None) for name in narrowed
        )
