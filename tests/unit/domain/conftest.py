"""Fixtures of the tests of the domain."""

import pytest

from horovodjob.api.constants import Phase
from unit.domain.fake_cluster import FakeCluster, phase_of, running_cluster


@pytest.fixture
def running() -> FakeCluster:
    """A job in phase Running."""
    cluster = running_cluster()
    assert phase_of(cluster) is Phase.RUNNING
    return cluster
