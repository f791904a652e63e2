"""Fixtures for jobs in queues: a control plane with the real Kueue, the operator, and pods that run at once."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from queues.node import Node
from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import (
    OperatorControlPlane,
    install,
    make_namespace,
    operator_kubeconfig,
)
from support.kueue.controller import Kueue
from support.kueue.queues import API, Queue, create_priority_classes, recorded_violations
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


def used_cpu(api: Api, cluster_queue: str) -> int:
    """What a ClusterQueue counts as used, in thousandths of a CPU."""
    status = api.get(f"{API}/clusterqueues/{cluster_queue}")["status"]
    totals = (one["total"] for flavor in status["flavorsUsage"] for one in flavor["resources"] if one["name"] == "cpu")
    return sum(_thousandths(total) for total in totals)


def requested_cpu(api: Api, namespace: str) -> int:
    """What the pods of a namespace request that have not ended, in thousandths of a CPU."""
    pods: list[Object] = api.items(f"/api/v1/namespaces/{namespace}/pods")
    active = (pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed"))
    return sum(_thousandths(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in active)


def _thousandths(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def wait_for_balance(*queues: Queue) -> None:
    """Waits until the quota in use of the queues of a namespace is what its pods request."""
    api, namespace = queues[0].api, queues[0].namespace

    def is_balanced() -> bool:
        return sum(used_cpu(api, queue.cluster_queue) for queue in queues) == requested_cpu(api, namespace)

    wait_for("quota and pods to be equal", is_balanced)
