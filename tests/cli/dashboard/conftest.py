"""The browser, and users with few rights."""

from collections.abc import Iterator

import pytest

from cli.cluster_state import ClusterState
from cli.dashboard.browser import Browser, dashboard
from cli.dashboard.chromium import Chromium, chromium
from cli.dashboard.in_cluster import Accounts
from support.api_client import Api


@pytest.fixture(scope="session")
def started_chromium() -> Iterator[Chromium]:
    """The browser of all tests: its start takes seconds."""
    with chromium() as started:
        yield started


@pytest.fixture
def address(cluster: ClusterState) -> Iterator[str]:
    """The address that `hvj dashboard` printed, which opens the jobs of the test's workspace."""
    with dashboard("-w", cluster.namespace, is_open=False) as opened:
        yield opened.address


@pytest.fixture
def browser(workspace: str) -> Iterator[Browser]:
    """A client that has opened the jobs of the test's workspace, without Chromium."""
    with dashboard("-w", workspace) as opened:
        yield opened


@pytest.fixture
def page(started_chromium: Chromium, address: str) -> Chromium:
    """The browser with the list of jobs, in the light scheme."""
    started_chromium.show()
    return started_chromium.open(address)


@pytest.fixture
def accounts(api: Api, workspace: str) -> Iterator[Accounts]:
    """Accounts of viewers in the test's workspace."""
    made = Accounts(api, workspace)
    yield made
    made.close()
