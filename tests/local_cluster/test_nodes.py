"""What a user can rely on of the nodes beside the first one, proved on a second cluster beside the default one."""

import itertools
import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from local_cluster.connectivity import connecting, process_of
from local_cluster.scratch import (
    CLUSTER,
    attempt,
    command,
    eventually,
    kubectl,
    wait_until_healthy,
    wait_until_reported,
)
from local_cluster.traces import traces
from localcluster.binaries.cache import Binaries
from localcluster.binaries.static_image import write_static_image
from localcluster.processes import Processes
from localcluster.settings import Cluster

pytestmark = pytest.mark.e2e

LABELS = {"kubernetes.azure.com/agentpool": "nc6cluster", "node.kubernetes.io/instance-type": "Standard_NC6s_v3"}
POOL = (
    *("--prefix", "gpu", "--gpus", "1", "--taint", "sku=gpu:NoSchedule"),
    *(word for label in LABELS.items() for word in ("--label", "=".join(label))),
)
NAMES = ["gpu1", "gpu2", "gpu3"]
PORT = 1053
COREFILE = f".:{PORT} {{\n  template ANY ANY {{\n    rcode NXDOMAIN\n  }}\n}}\n"


@pytest.fixture
def pool(_machine: None) -> Iterator[None]:
    """Three nodes with a GPU each; those of the test before, if they are still there. Pods do not outlive the test."""
    if attempt("nodes", "3", *POOL).returncode:
        command("up")
        command("nodes", "3", *POOL)
    yield
    kubectl("delete", "pods", "--all", "--now", check=False)


def nodes(path: str) -> list[str]:
    return kubectl("get", "nodes", f"--output=jsonpath={{range .items[*]}}{{{path}}} {{end}}").split()


def run_workers(*names: str, image: str = "") -> dict[str, dict[str, str]]:
    """Pods that need a GPU each and listen on a port, once all of them run: their nodes and addresses."""
    for name in names:
        container = {
            "name": "main",
            "image": image or Binaries(CLUSTER.cache).image_reference("coredns"),
            "imagePullPolicy": "Never",
            "args": [] if image else ["-conf", "/etc/coredns/Corefile"],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
        }
        corefile = {"path": "Corefile", "fieldRef": {"fieldPath": "metadata.annotations['Corefile']"}}
        spec = {
            "containers": [container],
            "nodeSelector": {"kubernetes.azure.com/agentpool": "nc6cluster"},
            "tolerations": [{"key": "sku", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "configuration", "downwardAPI": {"items": [corefile]}}],
        }
        metadata = {"name": name, "annotations": {"Corefile": COREFILE}}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        kubectl("create", "--filename=-", stdin=json.dumps(document))
    assert eventually(lambda: all(pod["phase"] == "Running" for pod in workers().values())), workers()
    return workers()


def workers() -> dict[str, dict[str, str]]:
    found = json.loads(kubectl("get", "pods", "--output=json"))["items"]
    return {
        pod["metadata"]["name"]: {
            "node": pod["spec"].get("nodeName", ""),
            "address": pod["status"].get("podIP", ""),
            "phase": pod["status"]["phase"],
            "uid": pod["metadata"]["uid"],
        }
        for pod in found
    }


def reaches(client: dict[str, str], server: dict[str, str]) -> bool:
    inside = ["nsenter", f"--net=/proc/{process_of(client['uid'])}/ns/net", "--"]
    return connecting(inside, server["address"], PORT).communicate()[0].split() == [str(PORT)]


def kill_kubelet(node: str) -> None:
    pid = Processes(CLUSTER).pid(f"kubelet-{node}")
    assert pid
    os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("pool")
def test_pods_with_a_gpu_run_on_a_node_each_and_reach_each_other_as_policies_allow() -> None:
    placed = run_workers("a", "b", "c")
    assert sorted(pod["node"] for pod in placed.values()) == NAMES
    for client, server in itertools.permutations(placed.values(), 2):
        assert eventually(partial(reaches, client, server))
    for name in placed:
        assert "CoreDNS-" in kubectl("logs", name)
        assert "CoreDNS-" in kubectl("exec", name, "--", "/coredns", "-version")
    client, server, _ = placed.values()
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }
    kubectl("create", "--filename=-", stdin=json.dumps(policy))
    assert eventually(lambda: not reaches(client, server))
    kubectl("delete", "networkpolicy", "closed")
    assert eventually(lambda: reaches(client, server))


@pytest.mark.usefixtures("pool")
def test_up_heals_a_killed_kubelet_and_a_deleted_node_and_images_are_on_all_nodes(tmp_path: Path) -> None:
    kill_kubelet("gpu3")
    wait_until_reported("kubelet-gpu3 does not run")
    assert attempt("status").stdout.count("does not run") == 2  # in the table and in the list of problems
    kubectl("delete", "node", "gpu2")
    command("up")
    wait_until_healthy()
    assert nodes(".status.allocatable.nvidia\\.com/gpu") == ["1"] * len(NAMES)
    labels = json.loads(kubectl("get", "node", "gpu2", "--output=jsonpath={.metadata.labels}"))
    assert labels.items() >= {**LABELS, "kubernetes.io/hostname": "gpu2"}.items()
    pause, name = Binaries(CLUSTER.cache).path("pause"), f"example.test/later:{os.getpid()}"
    write_static_image(pause, name, tmp_path / "later.tar")
    command("load-image", str(tmp_path / "later.tar"))
    placed = run_workers("a", "b", "c", image=name)
    assert sorted(pod["node"] for pod in placed.values()) == NAMES


@pytest.mark.usefixtures("pool")
def test_a_refused_label_changes_nothing_and_a_smaller_pool_keeps_its_first_nodes_and_other_pools() -> None:
    done = attempt("nodes", "1", "--label", "agentpool=two words")
    assert (done.returncode, "two words" in done.stderr) == (1, True)
    assert nodes(".metadata.name") == [*NAMES, "node1"]
    command("nodes", "1")
    command("nodes", "2", *POOL)
    assert nodes(".metadata.name") == ["gpu1", "gpu2", "node1", "node2"]


def test_removed_nodes_leave_nothing_behind(cluster: Cluster) -> None:
    command("nodes", "0")
    before = traces()
    command("nodes", "2", *POOL)
    run_workers("a", "b")
    command("nodes", "0")
    assert nodes(".metadata.name") == ["node1"]
    assert workers() == {}
    assert traces() == before
    assert not (cluster.state / "nodes").exists()


def test_down_leaves_nothing_behind_of_nodes_without_kubelet(cluster: Cluster) -> None:
    command("nodes", "2", *POOL)
    run_workers("a", "b")
    kill_kubelet("gpu2")
    command("down")
    assert {kind: found for kind, found in traces().items() if found} == {}
    assert not (cluster.state / "nodes").exists()
