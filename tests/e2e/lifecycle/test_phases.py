"""Jobs in every phase while the operator is killed, lost or absent."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from e2e import phases
from e2e.access import MERGE_PATCH, wait_for
from e2e.install import SYSTEM, Operator, Target
from e2e.namespace import RARELY, Namespace
from e2e.programs.test_progress import PROGRAM, posts
from support.api_client import Object

pytestmark = pytest.mark.serial

TRAIN = ["python", "-m", "horovodjob_trainer", "--dataset", "digits", "--threads", "1", "--epochs", "10000"]
SOON = {"name": "HVD_STALL_SECONDS", "value": "8"}
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


def test_an_operator_that_is_killed_repeatedly_creates_nothing_twice(namespace: Namespace, operator: Operator) -> None:
    """The operator is killed after each observed change of the job."""
    signs = _observed_changes(namespace)
    namespace.apply(namespace.job("hunted", phases.WAIT, worker={"replicas": 3}))
    kills: list[list[str]] = []
    while "phase Succeeded" in signs:
        found = wait_for(" or ".join(signs), lambda: [what for what, shown in signs.items() if shown()])
        operator.delete()
        kills.append(found)
        for what in found:
            del signs[what]
        if "phase Running" in found:
            namespace.release(*(f"hunted-worker-{index}" for index in range(3)))
    status = namespace.wait_phase("hunted", "Succeeded")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0), kills
    pods = sorted(pod["metadata"]["name"] for pod in namespace.pods_ever("hunted"))
    assert pods == ["hunted-launcher", *(f"hunted-worker-{index}" for index in range(3))], kills
    wait_for("no worker", lambda: list(namespace.pods("hunted")) == ["hunted-launcher"])
    # At least: pods exist, ranks run, ranks have ended. With fewer kills the test would prove little.
    assert len(kills) >= 3, kills


def _observed_changes(namespace: Namespace) -> dict[str, Callable[[], object]]:
    """The observed changes of the job `hunted`, in order."""

    def launcher() -> Object:
        return namespace.pod("hunted-launcher") or {"metadata": {}, "status": {}}

    return {
        "the first status": lambda: namespace.status("hunted").get("phase"),
        "the Secret": lambda: any(name.startswith("hunted-") for name in namespace.secrets()),
        "the launcher": lambda: namespace.pod("hunted-launcher"),
        "worker 0": lambda: namespace.pod("hunted-worker-0"),
        "worker 2": lambda: namespace.pod("hunted-worker-2"),
        "phase Starting": lambda: "Starting" in namespace.phases("hunted"),
        "the hosts": lambda: launcher()["metadata"].get("annotations", {}).get("horovodjob.dev/hosts"),
        "phase Running": lambda: "Running" in namespace.phases("hunted"),
        "the launcher's end": lambda: launcher()["status"].get("phase") == "Succeeded",
        "phase Succeeded": lambda: "Succeeded" in namespace.phases("hunted"),
    }


def test_without_an_operator_jobs_end_stalls_are_logged_and_deleted_jobs_leave_no_objects(
    namespace: Namespace, operator: Operator
) -> None:
    operator.running()  # A report that comes while another process takes over would be refused.
    namespace.apply(
        namespace.job("orphan", phases.WAIT, worker={"replicas": 2}),
        namespace.job("alone", ["python3", "-c", PROGRAM], worker={"replicas": 2}),
        namespace.job("trains", TRAIN, env=[RARELY, SOON]),
    )
    namespace.wait_phase("orphan", "Running")
    namespace.wait("alone", "a report", lambda status: status.get("training"))
    namespace.wait("trains", "steps", lambda status: status.get("training", {}).get("step"))
    namespace.stalled.add("trains")
    namespace.api.request("PATCH", SCALE, {"spec": {"replicas": 0}}, MERGE_PATCH)
    try:
        wait_for("no operator", lambda: not operator.pods.now)
        _signal_rank(namespace, "STOP")
        namespace.delete("orphan")
        wait_for("no job", lambda: not namespace.find("orphan"))
        wait_for("no pods", lambda: not namespace.pods("orphan"))
        wait_for("no Secret", lambda: not any(name.startswith("orphan-") for name in namespace.secrets()))
        namespace.release("alone-worker-0")
        wait_for("the launcher to end", lambda: _phase(namespace, "alone-launcher") == "Succeeded")
        assert [answer for _, answer in posts(namespace, "alone")] == [204, 0], "no leader receives the last report"
        _wait_for_log(namespace, "horovodjob: TrainingStalled: ", 1)
        _signal_rank(namespace, "CONT")
        _wait_for_log(namespace, "horovodjob: the training continues", 1)
        _signal_rank(namespace, "STOP")
        _wait_for_log(namespace, "horovodjob: TrainingStalled: ", 2)
        assert namespace.condition("trains", "Progressing")["status"] == "True"
    finally:
        namespace.api.request("PATCH", SCALE, {"spec": {"replicas": 1}}, MERGE_PATCH)
        operator.running()
    status = namespace.wait_phase("alone", "Succeeded")
    assert status["training"]["percent"] == "25%", "the report before is kept"
    message = namespace.wait_progressing("trains", "TrainingStalled")
    assert re.fullmatch(r"no step since \S+ \(usual: \S+ s\): rank 0 \(worker 0, node \S+\) is stopped", message), (
        message
    )
    _signal_rank(namespace, "CONT")
    namespace.wait_progressing("trains", "StepsCompleted", "True")
    status = namespace.status("trains")
    assert (status["phase"], status["attempt"], status.get("errors", [])) == ("Running", 1, [])


def _signal_rank(namespace: Namespace, name: str) -> None:
    namespace.exec("trains-worker-0", "pkill", f"-{name}", "-f", "^python -m horovodjob_trainer --dataset")


def _wait_for_log(namespace: Namespace, words: str, count: int) -> None:
    wait_for(f"{words}, {count} times", lambda: namespace.log("trains-launcher").count(words) >= count)


def _phase(namespace: Namespace, pod: str) -> str:
    return str((namespace.pod(pod) or {}).get("status", {}).get("phase", ""))
