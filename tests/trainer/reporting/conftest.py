"""Fixtures of the tests of progress reports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from horovodjob_trainer.reporting import progress_client
from trainer.reporting.operator_server import TIMEOUT_SECONDS, OperatorServer


@pytest.fixture
def log_lines() -> list[str]:
    """The lines that a client or a reporter logs."""
    return []


@pytest.fixture
def operator() -> Iterator[OperatorServer]:
    server = OperatorServer()
    yield server
    server.server.shutdown()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be slow, because other processes use it."""
    monkeypatch.setattr(progress_client, "TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr(progress_client, "CLOSE_TIMEOUT_SECONDS", TIMEOUT_SECONDS)
