"""What every end-to-end test uses: the cluster, the operator in it, a namespace for itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import install
from e2e.access import JOBS, Api, Kubectl
from e2e.install import Operator, Target
from e2e.recorder import Recorder
from e2e.space import Space

SPACES = pytest.StashKey[list[Space]]()
OPERATOR = pytest.StashKey[Operator]()
# The uid of the trainer image's user, who has to be able to write to a directory of this machine.
IMAGE_USER = 1000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What looks back on the whole session comes last."""
    items.sort(key=lambda item: "test_afterwards" in item.nodeid)


@pytest.fixture(scope="session")
def target() -> Target:
    """The cluster."""
    return install.target()


@pytest.fixture(scope="session")
def images(target: Target) -> dict[str, str]:
    """References of the images, by role."""
    return install.images(target)


@pytest.fixture(scope="session")
def api(target: Target) -> Api:
    """The API server, as the administrator."""
    return Api(target.kubeconfig)


@pytest.fixture(scope="session")
def kubectl(target: Target) -> Kubectl:
    """The command line, as the administrator."""
    return target.kubectl()


@pytest.fixture(scope="session")
def operator(
    target: Target,
    images: dict[str, str],
    api: Api,
    kubectl: Kubectl,
    tmp_path_factory: pytest.TempPathFactory,
    pytestconfig: pytest.Config,
) -> Operator:
    """The operator, installed from the manifests."""
    install.install_operator(kubectl, images["operator"], tmp_path_factory.mktemp("install"))
    running = Operator(api, target)
    running.running()
    pytestconfig.stash[OPERATOR] = running
    return running


@pytest.fixture(scope="session")
def jobs(operator: Operator, api: Api) -> Recorder:
    """Every version of every job since the session began."""
    return Recorder(api, f"{JOBS}/horovodjobs").begin()


@pytest.fixture(scope="session")
def pods(operator: Operator, api: Api) -> Recorder:
    """Every version of every job's pods since the session began."""
    return Recorder(api, "/api/v1/pods", "horovodjob.dev/job").begin()


@pytest.fixture(scope="session")
def new_space(
    api: Api, kubectl: Kubectl, jobs: Recorder, pods: Recorder, images: dict[str, str], pytestconfig: pytest.Config
) -> Callable[..., Space]:
    """Makes namespaces; whoever calls it removes them."""
    pytestconfig.stash[SPACES] = []

    def make(name: str, level: str = "restricted") -> Space:
        space = Space(api=api, kubectl=kubectl, jobs=jobs, pods=pods, image=images["trainer"], name=name)
        space.create(level)
        pytestconfig.stash[SPACES].append(space)
        return space

    return make


@pytest.fixture
def space(
    new_space: Callable[..., Space], request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[Space]:
    """A namespace of the test, at Pod Security restricted."""
    words = re.sub("[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())
    made = new_space(words)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def module_space(new_space: Callable[..., Space], request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace of the tests of one file, at Pod Security restricted."""
    made = new_space(request.module.__name__.rpartition("test_")[2].replace("_", "-"))
    yield made
    made.remove()


@pytest.fixture(scope="session")
def shared_directory(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes directories of the node that pods of the trainer image can write."""

    def make(name: str) -> Path:
        if not target.local:
            pytest.skip("the volume is a directory of the local cluster's node")
        assert target.local
        directory = target.local.state / "e2e" / tmp_path_factory.mktemp(name).parent.name / name
        directory.mkdir(parents=True, exist_ok=True)
        os.chown(directory, IMAGE_USER, IMAGE_USER)
        return directory

    return make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds to the report of a failure what the cluster has to say."""
    outcome: Any = yield
    report = outcome.get_result()
    if not report.failed:
        return
    fixtures = getattr(item, "funcargs", {})
    shown = [one for one in fixtures.values() if isinstance(one, Space)]
    for space in shown:
        report.sections += list(space.story())
    if operator := item.config.stash.get(OPERATOR, None):
        lines = operator.lines
        names = [space.name for space in shown]
        own = [line for line in lines if any(name in line for name in names)]
        report.sections.append(("operator log", "\n".join((own or lines)[-40:])))
