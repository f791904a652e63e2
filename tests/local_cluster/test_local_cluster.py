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


def test_a_second_up_changes_nothing(cluster: Cluster) -> None:
    before, pids = objects(), process_ids()
    assert {"coredns"} <= {item["metadata"]["name"] for item in before}
    command("up")
    assert process_ids() == pids
    assert objects() == before


@pytest.mark.parametrize(
    "victims",
    [("kubelet",), ("containerd", "kube-proxy"), ("etcd", "kube-apiserver"), COMPONENTS],
    ids=lambda victims: "+".join(victims) if len(victims) < len(COMPONENTS) else "everything",
)
def test_up_heals_killed_components_and_keeps_the_objects(cluster: Cluster, victims: tuple[str, ...]) -> None:
    kubectl("create", "configmap", "kept")
    kill(*victims)
    command("up")
    wait_until_healthy()
    kubectl("delete", "configmap", "kept")


def test_status_fails_while_a_component_is_missing(cluster: Cluster) -> None:
    kill("kube-scheduler")
    wait_until_reported("kube-scheduler does not run")


def test_up_heals_an_interface_and_routes_that_somebody_removed(cluster: Cluster) -> None:
    subprocess.run(["ip", "link", "delete", cluster.interface], check=True)
    command("up")
    wait_until_healthy()


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


def test_up_continues_where_an_interrupted_up_ended(cluster: Cluster) -> None:
    command("down")
    interrupted = subprocess.Popen([*COMMAND, "up"], stdout=subprocess.DEVNULL)
    assert eventually((cluster.run / "kube-apiserver.pid").exists)
    interrupted.kill()
    interrupted.wait()
    command("up")
    wait_until_healthy()


def test_pod_security_restricted_rejects_a_pod_that_may_be_root(cluster: Cluster) -> None:
    kubectl("create", "namespace", "restricted")
    kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
    answer = kubectl("--namespace=restricted", "create", "--filename=-", stdin=pod("root"), check=False)
    assert 'violates PodSecurity "restricted:latest"' in answer


def test_a_pod_that_wants_a_gpu_runs_only_where_the_node_advertises_one(cluster: Cluster) -> None:
    kubectl("create", "--filename=-", stdin=pod("gpu", resources={"limits": {"nvidia.com/gpu": "2"}}))
    reason = "--output=jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
    assert eventually(lambda: "Insufficient nvidia.com/gpu" in kubectl("get", "pod", "gpu", reason))
    command("gpus", "2")
    assert eventually(lambda: is_running("gpu"))
    kubectl("delete", "pod", "gpu")


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


def test_an_image_is_imported_once_for_the_same_content(cluster: Cluster) -> None:
    archive = str(Binaries(cluster.cache).image("pause"))
    first, second = (attempt("load-image", archive) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "registry.k8s.io/pause" in first.stderr
    assert "already there" in second.stderr


def test_requests_are_in_the_audit_log_with_their_user(cluster: Cluster) -> None:
    kubectl("create", "configmap", "audited")

    def logged() -> list[tuple[str, str]]:
        lines = (cluster.log / "audit.log").read_text().splitlines()
        events = [json.loads(line) for line in lines if '"audited"' in line and line.endswith("}")]
        return [(event["verb"], event["user"]["username"]) for event in events]

    assert eventually(lambda: logged() == [("create", "admin")]), logged()
    kubectl("delete", "configmap", "audited")


def test_down_leaves_nothing_behind(cluster: Cluster) -> None:
    kubectl("create", "--filename=-", stdin=pod("left", ports=[{"containerPort": 80, "hostPort": 18080}]))
    assert eventually(lambda: is_running("left"))
    there = traces()
    assert [kind for kind in ("processes", "mounts", "interfaces", "routes", "cgroups") if not there[kind]] == []
    command("down")
    assert {kind: found for kind, found in traces().items() if found} == {}


def test_down_after_everything_was_killed_leaves_nothing_behind(cluster: Cluster) -> None:
    kill(*COMPONENTS)
    command("down")
    assert {kind: found for kind, found in traces().items() if found} == {}
