"""Jobs in every phase while the operator is killed, lost or absent."""

from __future__ import annotations

import pytest

from e2e import phases
from e2e.access import MERGE_PATCH, wait_for
from e2e.install import SYSTEM, Operator, Target
from e2e.namespace import HELD, Namespace
from e2e.programs.test_progress import PROGRAM, posts

pytestmark = pytest.mark.serial

SCALE = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/horovodjob-operator/scale"


def test_jobs_in_every_phase_continue_when_the_operator_is_killed_and_its_pod_is_lost(
    namespace: Namespace, operator: Operator, target: Target
) -> None:
    phases.apply_jobs(namespace, *phases.PHASES)
    if target.local:  # on another cluster its process is not accessible
        operator.kill()
    operator.delete()
    phases.let_continue(namespace)
    for name in phases.PHASES:
        assert_ended(namespace, name)
    assert namespace.condition("terminating", "Failed")["reason"] == "Terminated"
    assert namespace.status("failed")["exitCode"] == 4


def assert_ended(namespace: Namespace, name: str) -> None:
    """Asserts that the job ends normally: no pod is created twice, no attempt is counted twice."""
    phase = "Failed" if name in ("terminating", "failed") else "Succeeded"
    status = namespace.wait_phase(name, phase)
    second = name == "restarting"
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1 + second, int(second), 0), name
    pods = sorted(pod["metadata"]["name"] for pod in namespace.pods_ever(name))
    assert pods == [*[f"{name}-launcher"] * (1 + second), f"{name}-worker-0", f"{name}-worker-1"], name
    wait_for(f"no worker of {name}", lambda: list(namespace.pods(name)) == [f"{name}-launcher"])
    # An operator that is killed between the status and the event does not send the event later.
    assert [event for event in namespace.events(name) if event in ("Succeeded", "Failed")] in ([phase], []), name


def test_without_an_operator_jobs_end_and_deleted_jobs_leave_no_objects(
    namespace: Namespace, operator: Operator
) -> None:
    operator.running()  # A report that comes while another process takes over would be refused.
    namespace.apply(
        namespace.job("orphan", HELD, worker={"replicas": 2}),
        namespace.job("alone", ["python3", "-c", PROGRAM], worker={"replicas": 2}),
    )
    namespace.wait_phase("orphan", "Running")
    namespace.wait("alone", "a report", lambda status: status.get("training"))
    namespace.api.request("PATCH", SCALE, {"spec": {"replicas": 0}}, MERGE_PATCH)
    try:
        wait_for("no operator", lambda: not operator.pods.now)
        namespace.delete("orphan")
        wait_for("no job", lambda: not namespace.find("orphan"))
        wait_for("no pods", lambda: not namespace.pods("orphan"))
        wait_for("no Secret", lambda: not any(name.startswith("orphan-") for name in namespace.secrets()))
        namespace.release("alone-worker-0")
        wait_for("the launcher to end", lambda: _phase(namespace, "alone-launcher") == "Succeeded")
        assert [answer for _, answer in posts(namespace, "alone")] == [204, 0], "no leader receives the last report"
    finally:
        namespace.api.request("PATCH", SCALE, {"spec": {"replicas": 1}}, MERGE_PATCH)
        operator.running()
    status = namespace.wait_phase("alone", "Succeeded")
    assert status["training"]["percent"] == "25%", "the report before is kept"


def _phase(namespace: Namespace, pod: str) -> str:
    return str((namespace.pod(pod) or {}).get("status", {}).get("phase", ""))
