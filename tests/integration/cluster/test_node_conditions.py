"""An operator that may read nodes: what they report is in the error, and such an end does not count."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_client import Api
from support.control_plane.operator_control_plane import OPERATOR_USER
from support.job_driver import Job, submit
from support.operator_process import Operator

NODE = "sick"
NAME = "read-nodes"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
XID = {"type": "XIDErrors", "status": "True", "reason": "XID79", "message": "GPU 3 has Xid 79"}
FINE = {"type": "GPUMissing", "status": "False", "reason": "NoGPUMissing", "message": ""}
REPORT = f"node {NODE} reports XIDErrors (GPU 3 has Xid 79)"


@pytest.fixture
def reading_operator(operator_process: Operator, operator_access: Path, tmp_path: Path) -> Iterator[Operator]:
    """An operator with this setting in place of the one that the tests share."""
    operator_process.kill()
    own = Operator(operator_access, tmp_path / "log", read_nodes="1").start()
    yield own
    own.kill()


@pytest.fixture
def sick_node(api: Api) -> Iterator[None]:
    """A node with a problem."""
    api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [XID, FINE]}})
    yield
    api.delete(f"/api/v1/nodes/{NODE}")


@contextlib.contextmanager
def right(api: Api) -> Iterator[None]:
    """The right of the chart's value rbac.readNodes."""
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    api.create(f"{RBAC}/clusterroles", {"metadata": {"name": NAME}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR_USER}]
    api.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": NAME}, "roleRef": role, "subjects": subjects})
    yield
    for plural in ("clusterrolebindings", "clusterroles"):
        api.delete(f"{RBAC}/{plural}/{NAME}")


def failed(api: Api, namespace: str, name: str) -> Job:
    """A job whose program has failed, with a worker on the node."""
    job = submit(api, namespace, name, runPolicy={"backoffLimit": 0})
    job.wait_for_pods()
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": f"{name}-worker-1"}, "target": target}
    api.create(f"{job.pods_path}/{name}-worker-1/binding", binding)
    job.advance_to("Running")
    job.end("launcher", 1, message="RuntimeError: CUDA error")
    return job


@pytest.mark.usefixtures("reading_operator", "sick_node")
def test_a_problem_of_a_node_is_in_the_error_and_the_end_does_not_count(api: Api, namespace: str) -> None:
    status = failed(api, namespace, "without-right").wait("Failed")
    assert (status["restarts"], status["errors"][-1]["nodeConditions"]) == (0, [])
    with right(api):
        status = failed(api, namespace, "train").wait("Restarting")
    error = status["errors"][-1]
    assert (status["restarts"], status["preemptions"]) == (0, 1)
    assert (error["failedNodes"], error["nodeConditions"]) == ([NODE], [REPORT])
    assert error["message"] == f"{REPORT}; its last lines: RuntimeError: CUDA error"
