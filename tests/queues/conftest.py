"""Fixtures for jobs in queues: a control plane with the real Kueue, the operator, and pods that run at once."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from queues.node import Node
from support.api_client import Api
from support.control_plane.operator_control_plane import (
    OperatorControlPlane,
    install,
    make_namespace,
    operator_kubeconfig,
)
from support.kueue.controller import Kueue
from support.kueue.queues import create_priority_classes, recorded_violations
from support.operator_process import Operator

NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster with Kueue and the operator."""

    api: Api
    control_plane: OperatorControlPlane
    kueue: Kueue
    operator: Operator
    node: Node


@pytest.fixture(scope="session")
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters, which end with the session."""
    started: list[Cluster] = []

    def make(name: str, **settings: Any) -> Cluster:
        directory = tmp_path_factory.mktemp(name)
        control_plane = OperatorControlPlane().__enter__()
        api = Api(control_plane.kubeconfig)
        install(api)
        node = Node(api)
        node.start()
        kueue = Kueue(api, control_plane.settings.pki, directory / "kueue")
        kueue.install()
        kueue.start(**kueue.with_framework() | settings)
        create_priority_classes(api)
        kubeconfig = operator_kubeconfig(api, directory / "kubeconfig")
        operator = Operator(kubeconfig, directory / "operator.log").start()
        started.append(Cluster(api, control_plane, kueue, operator, node))
        return started[-1]

    yield make
    for cluster in started:
        cluster.operator.kill()
        cluster.kueue.kill()
        cluster.node.end()
        cluster.control_plane.stop()


@pytest.fixture(scope="session")
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """The cluster that most tests share."""
    return make_cluster("cluster")


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A namespace for one test, with the operator and Kueue as they are at first."""
    name = f"queues-{next(NUMBERS)}"
    make_namespace(cluster.api, name)
    return name


@pytest.fixture
def check_quota(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Fails a test in which a pod ran without quota, or quota was left or given back too early."""
    with recorded_violations(cluster.api, namespace) as violations:
        yield
    assert violations == []
    assert cluster.operator.errors() == []
