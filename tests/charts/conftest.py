"""A real API server without operator and nodes, and both versions of Helm."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.api_client import Api
from support.control_plane.distribution import one_control_plane
from support.control_plane.fixtures import api, control_plane
from support.helm import HELM3, HELM4, Helm

__all__ = ["api", "control_plane"]

pytest_xdist_make_scheduler = one_control_plane("tests/charts")


@pytest.fixture(scope="session")
def helm_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of Helm's configuration, data and cache."""
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="session", params=[HELM3, HELM4])
def helm(request: pytest.FixtureRequest, api: Api, helm_home: Path) -> Helm:
    """Each version of Helm in turn, as the administrator."""
    return Helm(request.param, api.kubeconfig, helm_home)


@pytest.fixture(scope="session")
def helm4(api: Api, helm_home: Path) -> Helm:
    """Helm 4, for tests that do not depend on the version."""
    return Helm(HELM4, api.kubeconfig, helm_home)
