"""How pytest-xdist distributes test files to its workers."""

from typing import Protocol

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]


class SchedulerHook(Protocol):
    """The hook by which a conftest chooses the scheduler."""

    def __call__(self, config: pytest.Config, log: object) -> LoadFileScheduling | None:
        """The scheduler of `--dist loadfile`."""


def one_control_plane(shared: str) -> SchedulerHook:
    """Assigns the files of the folder `shared` to one worker, so that they need only one control plane."""

    class OneControlPlane(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return shared if nodeid.startswith(f"{shared}/") else str(super()._split_scope(nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
        return OneControlPlane(config, log) if config.getoption("dist") == "loadfile" else None

    return pytest_xdist_make_scheduler
