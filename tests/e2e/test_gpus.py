"""GPU requests: the scheduler counts GPUs that the node only pretends to have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.access import MERGE_PATCH, wait_for
from e2e.install import Target
from e2e.space import Space

NODE = "/api/v1/nodes/node1"
TAINT = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
TOLERATION = {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}


@pytest.fixture
def node(target: Target, space: Space) -> Iterator[Target]:
    """The node, which afterwards has neither GPUs nor taint again."""
    if not target.local:
        pytest.skip("only the local cluster's node pretends to have GPUs")
    target.command("gpus", "0")
    yield target
    space.api.request("PATCH", NODE, {"spec": {"taints": None}}, MERGE_PATCH)
    target.command("gpus", "0")


def test_a_job_with_gpus_runs_where_there_are_enough_and_on_tainted_gpu_nodes(space: Space, node: Target) -> None:
    space.api.request("PATCH", NODE, {"spec": {"taints": [TAINT]}}, MERGE_PATCH)
    show = 'echo "$HOSTNAME $AZ_BATCHAI_NUM_GPUS"'
    # Workers with GPUs tolerate the taint of GPU nodes by themselves; this launcher has to live on one as well.
    launcher = {"template": {"spec": {"tolerations": [TOLERATION]}}}
    space.apply(
        space.job("gpus", show, worker={"replicas": 2, "gpus": 1}, launcher=launcher),
        space.job("cpus", show),
    )
    space.wait("gpus", "no GPU", lambda _: _waits_for(space, "gpus", "Insufficient nvidia.com/gpu"))
    space.wait("cpus", "no node", lambda _: _waits_for(space, "cpus", "taint"))
    node.command("gpus", "4")
    space.wait_phase("gpus", "Succeeded")
    assert sorted(space.output("gpus")) == ["gpus-worker-0 1", "gpus-worker-1 1"]
    assert space.status("cpus")["phase"] == "Queued"
    workers = [pod for pod in space.pods_ever("gpus") if "worker" in pod["metadata"]["name"]]
    for worker in workers:
        tolerations: list[Any] = worker["spec"]["tolerations"]
        assert TOLERATION in tolerations
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in tolerations
        assert worker["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    wait_for("the workers are gone", lambda: list(space.pods("gpus")) == ["gpus-launcher"])


def _waits_for(space: Space, name: str, words: str) -> bool:
    ready = space.condition(name, "Ready")
    return space.status(name)["phase"] == "Queued" and words in ready.get("message", "")
