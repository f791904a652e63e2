"""How pytest-xdist distributes test files to its workers."""

from typing import Protocol

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]


class SchedulerHook(Protocol):
    """The hook by which a conftest chooses the scheduler."""

    def __call__(self, config: pytest.Config, log: object) -> LoadFileScheduling | None:
        """The scheduler of `--dist loadfile`."""


def one_control_plane(shared: str, *parameters: str) -> SchedulerHook:
    """Assigns the files of the folder `shared` to one worker, so that they need only one control plane.

    With parameters, which select control planes, the tests of each parameter have a worker of their own.
    """

    class OneControlPlane(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if not nodeid.startswith(f"{shared}/"):
                return str(super()._split_scope(nodeid))
            return next((f"{shared} {each}" for each in parameters if f"[{each}" in nodeid), shared)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
        return OneControlPlane(config, log) if config.getoption("dist") == "loadfile" else None

    return pytest_xdist_make_scheduler
