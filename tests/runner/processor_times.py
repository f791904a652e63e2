"""A pytest plugin: prints the processor time of each file of tests, which a busy machine does not change."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ATTRIBUTE = "processor_seconds"


class ProcessorTimes:
    """Adds up the processor time of this process, its children and the processes that they waited for, by file."""

    def __init__(self, least_seconds: float = 10.0) -> None:
        self._before, self._least_seconds = _seconds(), least_seconds
        self._by_file: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """The time between two tests belongs to none."""
        self._before = _seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        """Add the time since the previous report to the report, which pytest-xdist sends to its controller."""
        report = yield
        now = _seconds()
        setattr(report, ATTRIBUTE, now - self._before)
        self._before = now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count the time of a set-up, a call or a teardown."""
        self._by_file[report.location[0]] += getattr(report, ATTRIBUTE, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the files that needed much."""
        by_time = sorted(self._by_file.items(), key=lambda each: -each[1])
        found = [(file, seconds) for file, seconds in by_time if seconds >= self._least_seconds]
        if found:
            terminalreporter.section("processor seconds by file")
            terminalreporter.write_line("\n".join(f"{seconds:7.1f} {file}" for file, seconds in found))


def _seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _seconds_of_children()


def _seconds_of_children() -> float:
    """The time of children that still run, such as servers that fork processes for several files of tests."""
    ticks = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread or the child has ended
            for child in listed.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
