"""An empty cluster with each engine in turn, and in it the documented repository and a running operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops.argocd import ArgoCD
from gitops.engine import Delivery, Engine, EngineControlPlane
from gitops.flux import Flux
from gitops.git_repository import Repository, documented_repository, team_repository
from support.api_client import Api, Object, wait_for
from support.control_plane.distribution import one_control_plane
from support.control_plane.operator_control_plane import operator_kubeconfig
from support.control_plane.watch_threads import Kubelet, Watch
from support.operator_process import Operator

pytest_xdist_make_scheduler = one_control_plane("tests/gitops", Flux.name, ArgoCD.name)

NUMBERS = itertools.count(1)
ACCOUNT = "/api/v1/namespaces/horovodjob-system/serviceaccounts/horovodjob-operator"


class VolumeBinder(Watch):
    """Acts as the controller of volumes: every claim is bound at once."""

    path = "/api/v1/persistentvolumeclaims"

    def handle_event(self, event: Object) -> None:
        """Binds a claim."""
        metadata = event["object"]["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
        if event["type"] != "DELETED" and event["object"]["status"].get("phase") != "Bound":
            self._api.patch(path, {"status": {"phase": "Bound"}})


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that the documented repository was bootstrapped into."""

    engine: Engine
    repository: Repository
    training: Delivery
    """The jobs of the documented repository."""
    operator: Operator

    @property
    def api(self) -> Api:
        return self.engine.api


@pytest.fixture(scope="session", params=[Flux, ArgoCD], ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each engine, in an empty cluster whose kubelet and volumes the tests act as."""
    with EngineControlPlane() as control_plane:
        api = Api(control_plane.kubeconfig)
        watches = (Kubelet(api), VolumeBinder(api))
        for watch in watches:
            watch.start()
        started: Engine = request.param(control_plane, api, tmp_path_factory.mktemp(request.param.name))
        started.start()
        yield started
        control_plane.assert_running()
        for watch in watches:
            watch.end()
        assert [sentence for watch in watches for sentence in watch.errors() if "not alive" not in sentence] == []


@pytest.fixture(scope="session")
def cluster(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster after the steps of docs/gitops.md, with the operator as a process."""
    directory = tmp_path_factory.mktemp("documented")
    repository = documented_repository(directory / "training")
    engine.bootstrap(repository)
    engine.release_operator()
    wait_for("the operator's account", lambda: engine.api.find(ACCOUNT))
    operator = Operator(operator_kubeconfig(engine.api, directory / "kubeconfig"), directory / "log").start()
    yield Cluster(engine, repository, engine.jobs_of_bootstrap(repository), operator)
    operator.kill()


@pytest.fixture
def deliver(cluster: Cluster, tmp_path: Path) -> Callable[..., Delivery]:
    """Has the engine apply the jobs of a team, in a namespace of their own."""

    def begin(
        change: Callable[[Repository], object] = lambda repository: None,
        make: Callable[[Path, str], Repository] = team_repository,
        **settings: Any,
    ) -> Delivery:
        name = f"team-{next(NUMBERS):03}"  # as long as the name of the documentation, so that columns remain
        repository = make(tmp_path / name, name)
        change(repository)
        return cluster.engine.deliver(repository, f"{name}-jobs", **settings)

    return begin
