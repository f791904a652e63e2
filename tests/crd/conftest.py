"""A real API server with the CRD, for all tests of this folder."""

from collections.abc import Iterator

import pytest

from localcluster.control_plane.standalone import ControlPlane
from support.api_client import JOBS, Api, install_definition
from support.control_plane.distribution import one_control_plane

pytest_xdist_make_scheduler = one_control_plane("tests/crd")


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    """The administrator's connection."""
    with ControlPlane() as control_plane:
        connection = Api(control_plane.kubeconfig)
        install_definition(connection)
        yield connection


@pytest.fixture(scope="session")
def jobs() -> str:
    """Path of the collection of HorovodJobs that the tests write to."""
    return JOBS.format("default")
