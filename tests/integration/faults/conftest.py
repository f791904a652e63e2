"""Fixtures of tests with a proxy that answers with faults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_client import Api
from support.faults.fault_proxy import FaultProxy
from support.operator_process import Operator


@pytest.fixture
def proxy(api: Api, operator_access: Path, operator_process: Operator, tmp_path: Path) -> Iterator[FaultProxy]:
    """A proxy before the API server, for an operator of the test's own."""
    operator_process.kill()  # it would reconcile the same jobs
    with FaultProxy(api, operator_access, tmp_path) as started:
        yield started
