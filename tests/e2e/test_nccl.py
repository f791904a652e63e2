"""What ranks with GPUs find set for NCCL; the node only pretends to have GPUs, and a volume to be InfiniBand."""

from __future__ import annotations

from typing import Any

from e2e.install import Target
from e2e.space import Space
from e2e.test_gpus import node

NODE = node  # a fixture, used by its name
SHOW = "env | grep ^NCCL_ | sort | tr '\\n' ' '; echo"
INFINIBAND: dict[str, Any] = {
    "containers": [{"name": "worker", "volumeMounts": [{"name": "rdma", "mountPath": "/dev/infiniband"}]}],
    "volumes": [{"name": "rdma", "emptyDir": {}}],
}


def test_nccl_is_told_the_network_unless_somebody_else_has(space: Space, node: Target) -> None:
    node.command("gpus", "4")
    one = {"replicas": 1, "gpus": 1}
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "site", "namespace": space.name},
            "data": {"NCCL_SOCKET_IFNAME": "bond0"},
        },
        space.job("tcp", SHOW, worker=one),
        space.job("rdma", SHOW, worker=one | {"template": {"spec": INFINIBAND}}),
        space.job(
            "own",
            SHOW,
            worker=one,
            env=[{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_IB_DISABLE", "value": "0"}],
            envFrom=[{"configMapRef": {"name": "site"}}],
        ),
        space.job("cpu", SHOW, worker={"replicas": 1}),
    )
    wanted = {
        "tcp": "NCCL_DEBUG=WARN NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME==eth0",
        "rdma": "NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME==eth0",
        "own": "NCCL_DEBUG=INFO NCCL_IB_DISABLE=0 NCCL_SOCKET_IFNAME=bond0",
        "cpu": "",
    }
    for name, line in wanted.items():
        space.wait_phase(name, "Succeeded", seconds=90)
        assert " ".join(space.output(name)).strip() == line, name
