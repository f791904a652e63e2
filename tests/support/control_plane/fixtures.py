"""Fixtures of the folders that test against a real API server with its controllers: their conftest imports them."""

from collections.abc import Iterator

import pytest

from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Api, install_definition


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """etcd, API server, and the controllers for namespaces and garbage collection."""
    with ControlPlane(controllers=True) as started:
        yield started


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Api:
    """The administrator's connection, with the CRD installed."""
    connection = Api(control_plane.kubeconfig)
    install_definition(connection)
    return connection
