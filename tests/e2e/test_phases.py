"""Jobs in every phase while the operator is killed, lost or absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e import phases
from e2e.access import MERGE_PATCH, Object, wait_for
from e2e.install import SYSTEM, Operator, Target
from e2e.space import Space
from e2e.test_progress import PROGRAM, posts

pytestmark = pytest.mark.serial

SCALE = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/horovodjob-operator/scale"


def test_jobs_in_every_phase_continue_when_the_operator_is_killed_and_its_pod_is_lost(
    space: Space, operator: Operator, target: Target
) -> None:
    phases.apply_jobs(space, *phases.PHASES)
    if target.local:  # elsewhere its process is out of reach
        operator.kill()
    operator.delete()
    phases.let_continue(space)
    for name in phases.PHASES:
        assert_ended(space, name)
    assert space.condition("terminating", "Failed")["reason"] == "Terminated"
    assert space.status("failed")["exitCode"] == 4


def assert_ended(space: Space, name: str) -> None:
    """The job ends as if nothing had happened: no pod is made twice, no attempt is counted twice."""
    phase = "Failed" if name in ("terminating", "failed") else "Succeeded"
    status = space.wait_phase(name, phase)
    second = name == "restarting"
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1 + second, int(second), 0), name
    pods = sorted(pod["metadata"]["name"] for pod in space.pods_ever(name))
    assert pods == [*[f"{name}-launcher"] * (1 + second), f"{name}-worker-0", f"{name}-worker-1"], name
    wait_for(f"no worker of {name}", lambda: list(space.pods(name)) == [f"{name}-launcher"])
    # An operator that is killed between the status and the event does not send the event later.
    assert [event for event in space.events(name) if event in ("Succeeded", "Failed")] in ([phase], []), name


def test_an_operator_that_is_killed_over_and_over_makes_nothing_twice(space: Space, operator: Operator) -> None:
    """Killed whenever the job shows a new sign of life."""
    signs = _signs(space)
    space.apply(space.job("hunted", phases.WAIT, worker={"replicas": 3}))
    kills: list[list[str]] = []
    while signs:
        found = wait_for(" or ".join(signs), lambda: [what for what, shown in signs.items() if shown()])
        operator.delete()
        kills.append(found)
        for what in found:
            del signs[what]
        if "phase Running" in found:
            space.release(*(f"hunted-worker-{index}" for index in range(3)))
    status = space.wait_phase("hunted", "Succeeded")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0), kills
    pods = sorted(pod["metadata"]["name"] for pod in space.pods_ever("hunted"))
    assert pods == ["hunted-launcher", *(f"hunted-worker-{index}" for index in range(3))], kills
    wait_for("no worker", lambda: list(space.pods("hunted")) == ["hunted-launcher"])
    # The pods come before the ranks run, and these before they end: less would be one kill and not many.
    assert len(kills) >= 3, kills


def _signs(space: Space) -> dict[str, Callable[[], object]]:
    """What a user can see of the job `hunted`, in the order in which it comes."""

    def launcher() -> Object:
        return space.pod("hunted-launcher") or {"metadata": {}, "status": {}}

    return {
        "the first status": lambda: space.status("hunted").get("phase"),
        "the Secret": lambda: "hunted-mpi" in space.secrets(),
        "the launcher": lambda: space.pod("hunted-launcher"),
        "worker 0": lambda: space.pod("hunted-worker-0"),
        "worker 2": lambda: space.pod("hunted-worker-2"),
        "phase Starting": lambda: "Starting" in space.phases("hunted"),
        "the hosts": lambda: launcher()["metadata"].get("annotations", {}).get("horovodjob.dev/hosts"),
        "phase Running": lambda: "Running" in space.phases("hunted"),
        "the launcher's end": lambda: launcher()["status"].get("phase") == "Succeeded",
        "phase Succeeded": lambda: "Succeeded" in space.phases("hunted"),
    }


def test_without_an_operator_jobs_end_and_those_that_are_deleted_leave_nothing(
    space: Space, operator: Operator
) -> None:
    space.apply(
        space.job("orphan", phases.WAIT, worker={"replicas": 2}),
        space.job("alone", ["python3", "-c", PROGRAM], worker={"replicas": 2}),
    )
    space.wait_phase("orphan", "Running")
    space.wait("alone", "a report", lambda status: status.get("training"))
    space.api.request("PATCH", SCALE, {"spec": {"replicas": 0}}, MERGE_PATCH)
    try:
        wait_for("no operator", lambda: not operator.pods.now)
        space.delete("orphan")
        wait_for("no job", lambda: not space.find("orphan"))
        wait_for("no pods", lambda: not space.pods("orphan"))
        wait_for("no Secret", lambda: "orphan-mpi" not in space.secrets())
        space.release("alone-worker-0")
        wait_for("the launcher to end", lambda: _phase(space, "alone-launcher") == "Succeeded")
        assert [answer for _, answer in posts(space, "alone")] == [204, 0], "the last report reaches nobody"
    finally:
        space.api.request("PATCH", SCALE, {"spec": {"replicas": 1}}, MERGE_PATCH)
        operator.running()
    status = space.wait_phase("alone", "Succeeded")
    assert status["training"]["percent"] == "25%", "the report before is kept"


def _phase(space: Space, pod: str) -> str:
    return str((space.pod(pod) or {}).get("status", {}).get("phase", ""))
