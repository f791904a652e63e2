"""Fixtures of the tests of the domain."""

import pytest

from horovodjob.api.constants import Phase
from unit.domain.fake_cluster import FakeCluster, phase_of, training_job


@pytest.fixture
def running() -> FakeCluster:
    """A job in phase Running."""
    cluster = FakeCluster(training_job())
    cluster.start()
    assert phase_of(cluster) is Phase.RUNNING
    return cluster
