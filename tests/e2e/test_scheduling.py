"""Jobs that compete for nodes, on the default scheduler: without gangs, and as gangs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from e2e.access import MERGE_PATCH, Refused, wait_for
from e2e.install import Target
from e2e.space import Space

GATE = "e2e.horovodjob.dev/hold"
WAITS = "until [ -e /tmp/go ]; do sleep 0.1; done"


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


def _nodes(space: Space, name: str) -> list[str]:
    """The nodes that pods of a job ever had."""
    return [pod["spec"]["nodeName"] for pod in space.pods_ever(name) if pod["spec"].get("nodeName")]


def test_of_two_gangs_that_fit_one_at_a_time_the_second_holds_nothing_and_runs_when_the_first_is_done(
    space: Space, gpus: None
) -> None:
    """Three workers each and room for four."""
    wish = {"worker": {"replicas": 3, "gpus": 1}, "scheduling": {"gang": "Native", "timeoutSeconds": 3}}
    names = ("left", "right")
    space.apply(*(space.job(name, WAITS, **wish) for name in names))

    def running() -> list[str]:
        return [name for name in names if space.status(name).get("phase") == "Running"]

    (first,) = wait_for("one of them runs", running)
    (second,) = {*names} - {first}
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
    space.wait(second, "the words", lambda _: message in space.condition(second, "Ready")["message"])
    made = datetime.fromisoformat(space.pods()[f"{second}-launcher"]["metadata"]["creationTimestamp"])
    wait_for("its time to be over", lambda: datetime.now(UTC) > made + timedelta(seconds=6))
    assert (space.status(second)["phase"], len(space.pods(second)), _nodes(space, second)) == ("Queued", 4, [])
    for name in (first, second):
        space.wait_phase(name, "Running")
        space.release(*(f"{name}-worker-{index}" for index in range(3)))
        status = space.wait_phase(name, "Succeeded")
        assert (status["attempt"], status["errors"], len(_nodes(space, name))) == (1, [], 4)
        assert "SchedulingTimeout" not in space.events(name)


@pytest.mark.parametrize("lost", ["worker-1", "launcher"])
def test_a_gang_that_has_lost_a_pod_goes_on_with_the_others(space: Space, gpus: None, lost: str) -> None:
    """Those that stay count as members: the new ones are placed although they are fewer than the gang."""
    space.apply(space.job("gang", WAITS, worker={"replicas": 3, "gpus": 1}, scheduling={"gang": "Native"}))
    space.wait_phase("gang", "Running")
    workers = [f"gang-worker-{index}" for index in range(3)]
    kept = {name: space.pods()[name]["metadata"]["uid"] for name in workers if name != f"gang-{lost}"}
    space.delete_pod(f"gang-{lost}", seconds=1)
    space.wait("gang", "attempt 2", lambda status: status["attempt"] == 2 and status["phase"] == "Running")
    assert {name: space.pods()[name]["metadata"]["uid"] for name in kept} == kept
    space.release(*workers)
    assert space.wait_phase("gang", "Succeeded")["preemptions"] == 1
