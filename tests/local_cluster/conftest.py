"""The scratch cluster, in the state that a test needs."""

from collections.abc import Iterator

import pytest

from local_cluster.scratch import CLUSTER, command, wait_until_healthy
from localcluster.settings import Cluster


@pytest.fixture(scope="package")
def _machine() -> Iterator[None]:
    command("down", "--purge")
    yield
    command("down", "--purge")


@pytest.fixture
def cluster(_machine: None) -> Cluster:
    """A healthy cluster; the one of the test before, if that is still there."""
    command("up")
    wait_until_healthy()
    return CLUSTER
