"""Rules for every test: a skipped test is a failure, unless it is listed here."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import hypothesis
import pytest

from runner.failures import Failures
from runner.processor_times import ProcessorTimes

# On a busy machine, an example can take long to generate and to run.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

# Test id, as pytest prints it -> why it cannot run everywhere.
ALLOWED_SKIPS: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Print the processor time of each file of tests, and each failure at once."""
    config.pluginmanager.register(ProcessorTimes())
    config.pluginmanager.register(Failures(config))


def _fail_if_skipped(report: Any) -> None:
    """Turn a skip or an expected failure into a failure with its reason."""
    if report.outcome == "skipped" and report.nodeid not in ALLOWED_SKIPS:
        reason = getattr(report, "wasxfail", "") or report.longrepr
        reason = reason[2] if isinstance(reason, tuple) else str(reason)
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} did not run, and is not in ALLOWED_SKIPS of tests/conftest.py: {reason}"
        if hasattr(report, "wasxfail"):
            del report.wasxfail


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Check the outcome of each test, its set-up and its teardown."""
    report: Any = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """Check the outcome of the collection of each file: a file can skip itself."""
    report: Any = yield
    _fail_if_skipped(report)
    return report
