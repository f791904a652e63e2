"""Readiness, phase, preparation and exit of a pod are those of its main container, whatever its other containers do."""

from typing import Any

import pytest

from horovodjob.api.constants import Phase, Role
from horovodjob_operator.domain.pods.pod import Pod
from unit.domain.fake_cluster import new_cluster, phase_of, pod_facts, running_cluster

RUNNING: dict[str, Any] = {"ready": True, "state": {"running": {}}}
PULLING: dict[str, Any] = {"state": {"waiting": {"reason": "ContainerCreating"}}}
NOT_READY = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
SIDECARS: dict[str, dict[str, Any]] = {
    "an ended sidecar": {"state": {"terminated": {"exitCode": 0}}},
    "a failed sidecar": {"state": {"terminated": {"exitCode": 1, "reason": "OOMKilled"}}},
    "a sidecar that is not ready": {"state": {"running": {}}},
    "a sidecar without its image": {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
}


def ended(exit_code: int) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}}


def pod(role: Role, main: dict[str, Any], sidecar: dict[str, Any] | None = None, **fields: Any) -> Pod:
    """The facts of a pod with these containers; `spec` and other fields are those of the pod and its status."""
    labels = {"horovodjob.dev/job": "cifar", "horovodjob.dev/role": role}
    labels |= {"horovodjob.dev/replica-index": "0", "horovodjob.dev/attempt": "1"}
    metadata = {"name": f"cifar-{role}", "namespace": "team", "labels": labels}
    containers = [{"name": "proxy"} | sidecar] if sidecar else []
    spec = fields.pop("spec", {})
    status = {"phase": "Running"} | fields | {"containerStatuses": [*containers, {"name": role.value} | main]}
    return pod_facts({"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize("sidecar", SIDECARS)
@pytest.mark.parametrize("role", Role)
def test_a_pod_is_ready_and_runs_whatever_its_sidecar_does(role: Role, sidecar: str) -> None:
    seen = pod(role, RUNNING, SIDECARS[sidecar], conditions=NOT_READY)
    assert (seen.is_ready, seen.is_active, seen.waiting, seen.termination) == (True, True, None, None)
    assert not seen.has_pending_container


@pytest.mark.parametrize("sidecar", SIDECARS)
@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeeded"), (3, "Failed")])
@pytest.mark.parametrize("of_the_pod", ["Running", "Failed"])
def test_a_pod_ends_as_its_main_container_does(sidecar: str, exit_code: int, phase: str, of_the_pod: str) -> None:
    for role in Role:
        seen = pod(role, ended(exit_code), SIDECARS[sidecar], phase=of_the_pod)
        assert seen.termination is not None
        assert (seen.phase, seen.termination.container, seen.termination.exit_code) == (phase, role.value, exit_code)
        assert not seen.is_out_of_memory


@pytest.mark.parametrize("sidecar", SIDECARS)
def test_a_native_sidecar_does_not_decide_either(sidecar: str) -> None:
    native = [{"name": "mesh"} | SIDECARS[sidecar]]
    seen = pod(Role.WORKER, RUNNING, conditions=NOT_READY, initContainerStatuses=native)
    assert (seen.is_ready, seen.is_active, seen.waiting) == (True, True, None)
    assert pod(Role.LAUNCHER, ended(0), phase="Failed", initContainerStatuses=native).phase == "Succeeded"


def test_an_init_container_without_its_image_keeps_the_main_container_from_starting() -> None:
    waiting = [{"name": "setup", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    seen = pod(Role.WORKER, PULLING, phase="Pending", initContainerStatuses=waiting)
    assert seen.waiting is not None
    assert seen.waiting.container == "setup"


def test_an_init_container_that_fails_is_the_end_of_a_pod_whose_main_container_never_ran() -> None:
    failed = [{"name": "setup"} | ended(7)]
    seen = pod(Role.WORKER, PULLING, phase="Failed", initContainerStatuses=failed)
    assert seen.termination is not None
    assert (seen.phase, seen.termination.container, seen.termination.exit_code) == ("Failed", "setup", 7)


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded", "Terminated"])
def test_a_container_that_ends_with_0_because_the_kubelet_ends_the_pod_has_not_succeeded(reason: str) -> None:
    assert pod(Role.LAUNCHER, ended(0), phase="Failed", reason=reason).phase == "Failed"


def test_a_launcher_that_the_operator_stops_has_succeeded_only_if_the_kubelet_says_so() -> None:
    stopped = {"activeDeadlineSeconds": 1}
    assert pod(Role.LAUNCHER, ended(0), spec=stopped).is_active
    assert pod(Role.LAUNCHER, ended(0), spec=stopped, phase="Succeeded").phase == "Succeeded"
    assert pod(Role.LAUNCHER, ended(0), spec=stopped, phase="Failed", reason="DeadlineExceeded").phase == "Failed"


def test_a_terminated_job_whose_launcher_answers_the_signal_with_0_has_not_succeeded() -> None:
    cluster = running_cluster()
    cluster.edit_run_policy(terminate=True)
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].is_stopping
    seen = pod(Role.LAUNCHER, ended(0), spec={"activeDeadlineSeconds": 1})
    cluster.update_pod("cifar-launcher", phase=seen.phase, termination=seen.termination)
    cluster.remove_terminating_pods()
    cluster.reconcile()
    assert phase_of(cluster) is Phase.TERMINATING
    cluster.update_pod("cifar-launcher", phase="Failed", reason="DeadlineExceeded")
    cluster.reconcile()
    assert (phase_of(cluster), cluster.status.exit_code) == (Phase.FAILED, 0)


def test_a_job_has_finished_when_its_main_container_ends_while_a_sidecar_runs() -> None:
    cluster = running_cluster()
    seen = pod(Role.LAUNCHER, ended(0), RUNNING)
    cluster.update_pod(
        "cifar-launcher",
        phase=seen.phase,
        termination=seen.termination,
        has_running_sidecars=seen.has_running_sidecars,
    )
    cluster.reconcile()
    assert phase_of(cluster) is Phase.SUCCEEDED
    assert cluster.pods["cifar-launcher"].is_stopping


def test_a_prepared_worker_with_an_ended_sidecar_is_a_host() -> None:
    cluster = new_cluster(preparation={"command": "true"})
    cluster.schedule_pods()
    cluster.reconcile()
    assert not cluster.pods["cifar-launcher"].hosts
    seen = pod(Role.WORKER, RUNNING, SIDECARS["an ended sidecar"], conditions=NOT_READY)
    for index in range(2):
        cluster.update_pod(f"cifar-worker-{index}", is_ready=seen.is_ready)
    cluster.reconcile()
    assert cluster.pods["cifar-launcher"].hosts.count("\n") == 2
