"""A browser for each file."""

from collections.abc import Iterator

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.browser import dashboard
from cli.dashboard.chromium import Chromium, chromium


@pytest.fixture(scope="module")
def started_chromium() -> Iterator[Chromium]:
    """The browser of the file."""
    with chromium() as started:
        yield started


@pytest.fixture
def address(cluster: ClusterState) -> Iterator[str]:
    """The address that `hvj dashboard` printed, which opens the jobs of the test's workspace."""
    with dashboard("-w", cluster.namespace) as opened:
        yield opened.address


@pytest.fixture
def page(started_chromium: Chromium, address: str) -> Chromium:
    """The browser of the file with the list of jobs, in the light scheme."""
    started_chromium.show()
    return started_chromium.open(address)
