"""The page of the cluster, and what it says of an operator that is away."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cluster.kueue_objects import QUEUE, Kueue
from cli.cluster.nodes import POOL, Nodes
from cli.cluster_state import ClusterState, condition
from cli.dashboard.browser import Browser, dashboard
from cli.service_account import account_kubeconfig
from support.api_client import Api, Object, wait_for

OPERATOR = "horovodjob-operator"
SYSTEM = "horovodjob-system"


def test_pools_have_their_gpus_and_queues_what_waits_and_why(
    browser: Browser, cluster: ClusterState, nodes: Nodes, kueue: Kueue
) -> None:
    nodes.add("gpu-a", gpus=4)
    nodes.add("gpu-b", gpus=4, conditions=("GPUMissing",))
    cluster.pod(cluster.create("train", worker={"replicas": 1, "gpus": 3}), "worker", node="gpu-a", gpus=3)
    cluster.run("train", queue={"name": QUEUE, "clusterQueue": "team"})
    for name, position in (("later", 2), ("next", 1)):
        cluster.create(name)
        waits = condition("Queued", "QuotaReserved", f"{name} waits for quota")
        cluster.report(name, phase="Queued", conditions=[waits], queue={"name": QUEUE, "position": position})
    shown = wait_for("the queue", lambda: text if "2 waiting, 1 admitted" in (text := browser.text("/cluster")) else "")
    assert f"{POOL} Standard_NC4as_T4_v3 2 nodes, 8 GPUs: 3 used, 1 free" in shown
    assert re.search(rf"gpu-a \w+ 4 3 {cluster.namespace}/train", shown), shown
    assert "gpu-b GPUMissing: GPUMissing! unusable 4 0" in shown
    assert re.search(rf"{QUEUE} namespace {cluster.namespace}, ClusterQueue team 2 waiting, 1 admitted: train", shown)
    assert re.search(r" 1 next \S+ \S+ next waits for quota 2 later \S+ \S+ later waits for quota", shown), shown
    with browser.stream("/cluster/changes?since=0") as changes:
        nodes.add("gpu-new")
        while "gpu-new" not in browser.text("/cluster/state"):
            changes.next()


def test_a_viewer_without_the_right_to_queues_reads_the_refusal_and_what_waits(
    api: Api, cluster: ClusterState, kueue: Kueue, viewer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.create("waits")
    cluster.report("waits", phase="Queued", queue={"name": QUEUE, "position": 1})
    monkeypatch.setenv("KUBECONFIG", str(account_kubeconfig(api, cluster.namespace, tmp_path, viewer)))
    with dashboard() as browser:
        shown = wait_for("the queue", lambda: text if "1 waiting" in (text := browser.text("/cluster")) else "")
    assert 'localqueues.kueue.x-k8s.io is forbidden: User "system:serviceaccount' in shown


@pytest.fixture
def operator(api: Api) -> Iterator[Object]:
    """The Deployment of an operator as its installation makes it, without a replica."""
    api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    labels = {"app.kubernetes.io/name": OPERATOR}
    container = {"name": "operator", "image": "operator:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
    made: Object = api.create(path, {"metadata": {"name": OPERATOR, "labels": labels}, "spec": spec})
    dashboard_labels = labels | {"app.kubernetes.io/component": "dashboard"}
    api.create(path, {"metadata": {"name": "dashboard", "labels": dashboard_labels}, "spec": spec | {"replicas": 1}})
    yield made
    api.delete(f"{path}/{OPERATOR}")
    api.delete(f"{path}/dashboard")
    api.delete(f"/api/v1/namespaces/{SYSTEM}")


def test_an_operator_that_is_away_is_on_the_pages_of_those_who_may_know(
    browser: Browser, cluster: ClusterState, operator: Object
) -> None:
    cluster.create()
    wait_for("the job", lambda: browser.get(f"/jobs/{cluster.namespace}/train").status_code == 200)
    sentence = (
        "Nothing acts on jobs now : the operator is scaled to zero: "
        f"Deployment {OPERATOR} in namespace {SYSTEM} has 0 replicas"
    )

    def shows(path: str) -> bool:
        return sentence in browser.text(path)

    for path in ("/", f"/jobs/{cluster.namespace}/train", "/cluster"):
        wait_for("the sentence", functools.partial(shows, path))
