"""What a user of the local cluster can rely on, proved on a second cluster beside the default one."""

import json
import subprocess
from typing import Any

import pytest

from local_cluster.scratch import (
    COMMAND,
    attempt,
    command,
    eventually,
    is_running,
    kill,
    kubectl,
    pod,
    process_ids,
    wait_until_healthy,
    wait_until_reported,
)
from local_cluster.traces import traces
from localcluster.binaries.cache import Binaries
from localcluster.settings import COMPONENTS, Cluster

pytestmark = pytest.mark.e2e


def node(path: str) -> str:
    return kubectl("get", "node", "node1", f"--output=jsonpath={{.status.{path}}}")


def objects() -> list[dict[str, Any]]:
    """What `up` has made, but for what the cluster's own controllers write: the readiness of a pod may change."""
    found = json.loads(kubectl("get", "deployments,configmaps,services,clusterroles", "-A", "--output=json"))["items"]
    for item in found:
        if item.pop("status", None) is not None:
            del item["metadata"]["resourceVersion"]
    return list(found)


def test_a_second_up_changes_nothing_and_an_image_is_imported_once_for_the_same_content(cluster: Cluster) -> None:
    before, pids = objects(), process_ids()
    assert {"coredns"} <= {item["metadata"]["name"] for item in before}
    command("up")
    assert process_ids() == pids
    assert objects() == before
    archive = str(Binaries(cluster.cache).image("pause"))
    first, second = (attempt("load-image", archive) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "registry.k8s.io/pause" in first.stderr
    assert "already there" in second.stderr


def test_up_heals_what_was_killed_or_removed_and_keeps_the_objects(cluster: Cluster) -> None:
    kubectl("create", "configmap", "kept")
    kill("kube-scheduler", "containerd")
    wait_until_reported("kube-scheduler does not run")
    subprocess.run(["ip", "link", "delete", cluster.interface], check=True)
    command("up")
    wait_until_healthy()
    kill(*COMPONENTS)
    command("up")
    wait_until_healthy()
    kubectl("delete", "configmap", "kept")


def test_up_starts_again_from_nothing_where_the_state_is_broken(cluster: Cluster) -> None:
    command("gpus", "3")
    kill(*COMPONENTS)
    for file in (cluster.state / "etcd").rglob("*.wal"):
        file.write_bytes(b"broken" * 1000)
    (cluster.run / "kubelet.pid").write_text("1")  # a process that is not ours must survive this
    command("up")
    wait_until_healthy()
    assert node("allocatable.nvidia\\.com/gpu") == "3"
    command("gpus", "0")


def test_the_node_keeps_its_gpus_when_the_kubelet_reports_or_restarts(cluster: Cluster) -> None:
    command("gpus", "3")
    kill("kubelet")
    command("up")
    # The kubelet itself answers a new capacity with an allocatable amount: that report must not drop the GPUs.
    capacity = json.dumps({"status": {"capacity": {"example.test/thing": "1"}}})
    kubectl("patch", "node", "node1", "--subresource=status", "--patch", capacity)
    assert eventually(lambda: node("allocatable.example\\.test/thing") == "1")
    assert node("allocatable.nvidia\\.com/gpu") == "3"
    command("gpus", "0")
    assert node("capacity.nvidia\\.com/gpu") == ""


def test_down_leaves_nothing_behind(cluster: Cluster) -> None:
    kubectl("create", "--filename=-", stdin=pod("left", ports=[{"containerPort": 80, "hostPort": 18080}]))
    assert eventually(lambda: is_running("left"))
    there = traces()
    assert [kind for kind in ("processes", "mounts", "interfaces", "routes", "cgroups") if not there[kind]] == []
    command("down")
    assert {kind: found for kind, found in traces().items() if found} == {}


def test_up_continues_where_an_interrupted_up_ended(cluster: Cluster) -> None:
    command("down")
    interrupted = subprocess.Popen([*COMMAND, "up"], stdout=subprocess.DEVNULL)
    assert eventually((cluster.run / "kube-apiserver.pid").exists)
    interrupted.kill()
    interrupted.wait()
    command("up")
    wait_until_healthy()
