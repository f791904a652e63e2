"""One job in each phase at the same time: what becomes of them when they are deleted, or the operator is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.access import Object, wait_for
from e2e.install import Operator, Target
from e2e.space import RESTRICTED, Space

WAIT = "until [ -e /tmp/go ]; do sleep 0.1; done"
ENDS_LATE = {"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", WAIT]}}}}
FATES = {
    "queued": "Succeeded",
    "starting": "Succeeded",
    "running": "Succeeded",
    "restarting": "Succeeded",
    "suspended": "Succeeded",
    "terminating": "Failed",
    "succeeded": "Succeeded",
    "failed": "Failed",
}


def one_job_in_each_phase(space: Space) -> None:
    """Applies eight jobs and waits until each is in the phase that it is named after."""
    two = {"replicas": 2}
    space.apply(
        space.job("queued", "true", worker=two, nodeSelector={"e2e.horovodjob.dev/space": space.name}),
        space.job("starting", "true", worker=two | _held_by_an_init_container(space)),
        space.job("running", WAIT, worker=two),
        space.job("suspended", "true", worker=two, runPolicy={"suspend": True}),
        space.job("terminating", "sleep 3600", worker=two | _ends_late(), runPolicy={"activeDeadlineSeconds": 20}),
        space.job("succeeded", "true", worker=two),
        space.job("failed", "exit 4", worker=two, runPolicy={"backoffLimit": 0}),
    )
    for name in FATES:
        if name != "restarting":
            space.wait_phase(name, name.capitalize(), seconds=120)
    # The delay before another attempt is the one phase that cannot be held.
    space.apply(space.job("restarting", '[ "$HOROVODJOB_ATTEMPT" = 2 ]', worker=two))
    space.wait_phase("restarting", "Restarting", seconds=90)
    assert {name: space.status(name)["phase"] for name in FATES} == {name: name.capitalize() for name in FATES}


def _ends_late() -> Object:
    worker = {"name": "worker", **ENDS_LATE}
    return {"template": {"spec": {"terminationGracePeriodSeconds": 120, "containers": [worker]}}}


def _held_by_an_init_container(space: Space) -> Object:
    container = {
        "name": "hold",
        "image": space.image,
        "command": ["sh", "-c", f"{WAIT}; sleep 1"],
        "securityContext": RESTRICTED,
    }
    return {"template": {"spec": {"initContainers": [container]}}}


def let_go(space: Space, target: Target) -> None:
    """Gives every job what it waits for."""
    node = next(pod["spec"]["nodeName"] for pod in space.pods("running").values())
    space.kubectl("label", "node", node, f"e2e.horovodjob.dev/space={space.name}", "--overwrite")
    for name in ("running", "terminating"):
        space.release(*(f"{name}-worker-{index}" for index in (0, 1)))
    space.release(*(f"starting-worker-{index}" for index in (0, 1)), container="hold")
    space.change("suspended", {"runPolicy": {"suspend": False}})


def all_end_as_they_should(space: Space) -> None:
    """Each job ends as if nothing had happened, with no pod made twice and no attempt counted twice."""
    for name, phase in FATES.items():
        status = space.wait_phase(name, phase, seconds=120)
        second = name == "restarting"
        assert (status["attempt"], status["restarts"], status["preemptions"]) == (1 + second, int(second), 0), name
        pods = sorted(pod["metadata"]["name"] for pod in space.pods_ever(name))
        launchers = [f"{name}-launcher"] * (1 + second)
        assert pods == [*launchers, f"{name}-worker-0", f"{name}-worker-1"], name
        wait_for("no worker", lambda name=name: list(space.pods(name)) == [f"{name}-launcher"])  # type: ignore[misc]
        ends = [event for event in space.events(name) if event in ("Succeeded", "Failed")]
        assert ends in ([phase], []), name
    assert space.condition("terminating", "Failed")["reason"] == "DeadlineExceeded"
    assert space.status("failed")["exitCode"] == 4


def test_a_job_that_is_deleted_in_any_phase_leaves_nothing(space: Space) -> None:
    one_job_in_each_phase(space)
    names = list(FATES)
    for name in names:
        space.delete(name)
    wait_for("no job", lambda: not any(space.find(name) for name in names), 10)
    space.release("terminating-worker-0", "terminating-worker-1")
    wait_for("no pods", lambda: not space.pods(), 60)
    wait_for("no secrets", lambda: not space.secrets(), 60)


def test_jobs_in_every_phase_go_on_when_the_operator_is_killed(
    space: Space, operator: Operator, target: Target
) -> None:
    if not target.local:
        pytest.skip("the operator's process is out of reach on a cluster that is not local")
    one_job_in_each_phase(space)
    operator.kill()
    let_go(space, target)
    all_end_as_they_should(space)


def test_jobs_in_every_phase_go_on_when_the_operators_pod_is_lost(
    space: Space, operator: Operator, target: Target
) -> None:
    one_job_in_each_phase(space)
    operator.delete()
    let_go(space, target)
    all_end_as_they_should(space)


def test_an_operator_that_is_killed_over_and_over_makes_nothing_twice(
    space: Space, operator: Operator, target: Target
) -> None:
    """Killed as soon as the job shows the next sign of life, whatever that is."""
    signs: list[tuple[str, Callable[[], object]]] = [
        ("the first status", lambda: space.status("hunted").get("phase")),
        ("the first pod", lambda: space.pods("hunted")),
    ]
    space.apply(space.job("hunted", "true", worker={"replicas": 3}))
    for what, sign in signs:
        wait_for(what, sign, 120)
        operator.delete()
    status = space.wait_phase("hunted", "Succeeded", seconds=120)
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0)
    pods = sorted(pod["metadata"]["name"] for pod in space.pods_ever("hunted"))
    assert pods == ["hunted-launcher", *(f"hunted-worker-{index}" for index in range(3))]


def test_a_job_that_was_deleted_while_there_was_no_operator_leaves_nothing(space: Space, operator: Operator) -> None:
    space.apply(space.job("orphan", WAIT, worker={"replicas": 2}))
    space.wait_phase("orphan", "Running")
    scale = "/apis/apps/v1/namespaces/horovodjob-system/deployments/horovodjob-operator/scale"
    space.api.request("PATCH", scale, {"spec": {"replicas": 0}}, "application/merge-patch+json")
    try:
        wait_for("no operator", lambda: not operator.pods.now)
        space.delete("orphan")
        wait_for("no job", lambda: not space.find("orphan"), 10)
        wait_for("no pods", lambda: not space.pods(), 60)
        wait_for("no secrets", lambda: not space.secrets(), 60)
    finally:
        space.api.request("PATCH", scale, {"spec": {"replicas": 1}}, "application/merge-patch+json")
        operator.running()
