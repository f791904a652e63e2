"""A real API server with the CRD, for all tests of this folder."""

from collections.abc import Iterator

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from api.client import JOBS, Api, install_definition
from cluster.apiserver import ControlPlane


class OneControlPlane(LoadFileScheduling):  # type: ignore[misc]
    """Gives the files of this folder to one worker, so that they cost one control plane; each other file to any."""

    def _split_scope(self, nodeid: str) -> str:
        folder, _, _ = nodeid.partition("::")[0].rpartition("/")
        return folder if folder == "tests/api" else str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneControlPlane | None:
    """The scheduler of `--dist loadfile`."""
    return OneControlPlane(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    """The administrator's connection."""
    with ControlPlane() as plane:
        connection = Api(plane)
        install_definition(connection)
        yield connection


@pytest.fixture(scope="session")
def jobs() -> str:
    """Path of the collection of HorovodJobs that the tests write to."""
    return JOBS.format("default")
