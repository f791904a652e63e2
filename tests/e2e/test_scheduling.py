"""Jobs that compete for nodes, on the default scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.access import MERGE_PATCH, Refused, wait_for
from e2e.install import Target
from e2e.space import Space

GATE = "e2e.horovodjob.dev/hold"


@pytest.fixture
def gpus(target: Target) -> Iterator[None]:
    """A node with room for four workers."""
    if not target.local:
        pytest.skip("only the local cluster's node pretends to have GPUs")
    target.command("gpus", "4")
    yield
    target.command("gpus", "0")


def _let_go(space: Space, *names: str) -> None:
    """Takes the gate from pods that have one."""
    for name, pod in space.pods().items():
        if pod["spec"].get("schedulingGates") and (not names or name in names):
            try:
                space.api.request(
                    "PATCH", f"{space.core}/pods/{name}", {"spec": {"schedulingGates": None}}, MERGE_PATCH
                )
            except Refused:
                continue  # it has just gone


def test_two_jobs_that_hold_half_of_the_nodes_each_both_finish(space: Space, gpus: None) -> None:
    """Three workers each and room for four: by gates, each job first gets two of them."""
    gated = {"template": {"spec": {"schedulingGates": [{"name": GATE}]}}}
    wish = {
        "worker": {"replicas": 3, "gpus": 1, **gated},
        "scheduling": {"timeoutSeconds": 5},
    }
    names = ("left", "right")
    space.apply(*(space.job(name, "true", **wish) for name in names))
    held = [f"{name}-worker-{index}" for name in names for index in (0, 1)]
    wait_for("all workers", lambda: {*held} <= set(space.pods()))
    _let_go(space, *held)

    def placed() -> bool:
        return all((space.pod(name) or {}).get("spec", {}).get("nodeName") for name in held)

    wait_for("two workers of each job are placed", placed)

    def both_ended() -> bool:
        _let_go(space)
        return all(space.status(name).get("phase") in ("Succeeded", "Failed") for name in names)

    wait_for("both jobs end", both_ended, 180)
    for name in names:
        status = space.status(name)
        assert (status["phase"], status["restarts"], status["preemptions"]) == ("Succeeded", 0, 0)
    released = [name for name in names if "SchedulingTimeout" in space.events(name)]
    assert released, "they stood in each other's way"
