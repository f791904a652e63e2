"""Jobs with GPUs that the node only advertises: placement, competition, and the settings of NCCL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.access import MERGE_PATCH, wait_for
from e2e.install import Target
from e2e.namespace import Namespace
from support.api_client import ApiError, Object

GATE = "e2e.horovodjob.dev/hold"
TOLERATIONS = (
    {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
)
INFINIBAND: dict[str, Any] = {
    "containers": [{"name": "worker", "volumeMounts": [{"name": "rdma", "mountPath": "/dev/infiniband"}]}],
    "volumes": [{"name": "rdma", "emptyDir": {}}],
}
NCCL = {
    "tcp": "NCCL_DEBUG=WARN NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME==eth0",
    "rdma": "NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME==eth0",
    "own": "NCCL_DEBUG=INFO NCCL_IB_DISABLE=0 NCCL_SOCKET_IFNAME=bond0",
}


@pytest.fixture
def gpus(target: Target, gpus_alone: None) -> Iterator[Callable[[int], None]]:
    """Sets the number of GPUs of the node; none before and after the tests."""

    def count(number: int) -> None:
        target.command("gpus", str(number))

    count(0)
    yield count
    count(0)


@pytest.fixture
def four_gpus(gpus: Callable[[int], None]) -> None:
    """A node with GPUs for four workers."""
    gpus(4)


def _site(namespace: Namespace) -> Object:
    metadata = {"name": "site", "namespace": namespace.name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"NCCL_SOCKET_IFNAME": "bond0"}}


def test_jobs_wait_for_gpus_and_get_the_settings_of_nccl(namespace: Namespace, gpus: Callable[[int], None]) -> None:
    show = "env | grep ^NCCL_ | sort | tr '\\n' ' '; echo"
    one = {"replicas": 1, "gpus": 1}
    own = [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_IB_DISABLE", "value": "0"}]
    namespace.apply(
        _site(namespace),
        namespace.job("gpus", 'echo "$HOSTNAME $AZ_BATCHAI_NUM_GPUS"', worker={"replicas": 2, "gpus": 1}),
        namespace.job("tcp", show, worker=one),
        namespace.job("rdma", show, worker=one | {"template": {"spec": INFINIBAND}}),
        namespace.job("own", show, worker=one, env=own, envFrom=[{"configMapRef": {"name": "site"}}]),
    )
    words = "Insufficient nvidia.com/gpu"
    namespace.wait("gpus", words, lambda _: words in namespace.condition("gpus", "Ready").get("message", ""))
    assert namespace.status("gpus")["phase"] == "Queued"
    gpus(8)
    namespace.wait_phase("gpus", "Succeeded")
    assert sorted(namespace.output("gpus")) == ["gpus-worker-0 1", "gpus-worker-1 1"]
    for pod in namespace.pods_ever("gpus"):
        is_worker = "worker" in pod["metadata"]["name"]
        assert [one in pod["spec"]["tolerations"] for one in TOLERATIONS] == [is_worker] * 2
        limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
        assert limits == ({"nvidia.com/gpu": "1"} if is_worker else {})
    for name, line in NCCL.items():
        namespace.wait_phase(name, "Succeeded")
        assert " ".join(namespace.output(name)).strip() == line, name


def _open_gates(namespace: Namespace, *names: str) -> None:
    """Removes the scheduling gates of pods."""
    for name, pod in namespace.pods().items():
        if pod["spec"].get("schedulingGates") and (not names or name in names):
            try:
                namespace.api.request(
                    "PATCH", f"{namespace.core}/pods/{name}", {"spec": {"schedulingGates": None}}, MERGE_PATCH
                )
            except ApiError:
                continue  # it was just deleted


@pytest.mark.usefixtures("four_gpus")
def test_two_partly_scheduled_jobs_both_finish(namespace: Namespace) -> None:
    """Each job has three workers, the node has GPUs for four. With gates, each job first gets two."""
    gated = {"template": {"spec": {"schedulingGates": [{"name": GATE}]}}}
    spec = {"worker": {"replicas": 3, "gpus": 1, **gated}, "scheduling": {"timeoutSeconds": 5}}
    names = ("left", "right")
    namespace.apply(*(namespace.job(name, "true", **spec) for name in names))
    held = [f"{name}-worker-{index}" for name in names for index in (0, 1)]

    def placed() -> bool:
        # Five seconds are short on a busy machine: a job with deleted pods recreates them.
        _open_gates(namespace, *held)
        return all((namespace.pod(name) or {}).get("spec", {}).get("nodeName") for name in held)

    wait_for("two workers of each job are placed", placed)

    def both_ended() -> bool:
        _open_gates(namespace)
        return all(namespace.status(name).get("phase") in ("Succeeded", "Failed") for name in names)

    wait_for("both jobs end", both_ended)
    for name in names:
        status = namespace.status(name)
        assert (status["phase"], status["restarts"], status["preemptions"]) == ("Succeeded", 0, 0)
    released = [name for name in names if "SchedulingTimeout" in namespace.events(name)]
    assert released, "neither job blocked the other"
