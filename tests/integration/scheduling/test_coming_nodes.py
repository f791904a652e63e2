"""Jobs that wait for nodes of an autoscaler: its events are the only information about them."""

from collections.abc import Callable
from datetime import UTC, datetime

from support.api_client import wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]
NO_NODE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def report_unschedulable(job: Job, role: str) -> None:
    """The scheduler has no node for a pod."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_NODE}
    job.report(role, conditions=[condition])


def post(job: Job, role: str, reason: str, message: str) -> None:
    """The autoscaler posts an event about a pod."""
    pod = job.wait_for_pods()[role]["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "namespace": job.namespace, "uid": pod["uid"]}
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {"metadata": {"name": reason.lower()}, "involvedObject": about, "reason": reason, "message": message}
    job.api.create(f"/api/v1/namespaces/{job.namespace}/events", {**event, "type": "Normal", "lastTimestamp": time})


def test_a_job_keeps_its_place_while_nodes_come_and_loses_it_when_the_pool_is_at_its_maximum(
    submit_job: Submit, operator: Operator, control_plane: OperatorControlPlane, namespace: str
) -> None:
    job = submit_job(scheduling={"timeoutSeconds": 5})
    post(job, "worker-1", "TriggeredScaleUp", "pod triggered scale-up: [{aks-gpunp-vmss 0->1 (max: 1)}]")
    report_unschedulable(job, "worker-1")
    job.schedule(["launcher", "worker-0"])
    before = job.uids()
    wait_for("the read", lambda: "list events" in control_plane.requests(namespace))
    operator.kill()  # The time is over, and the new process knows nothing of the nodes.
    operator.start()
    wait_for("the message", lambda: "nodes are on their way since" in job.condition("Ready").get("message", ""))
    assert (job.status["attempt"], job.uids()) == (1, before)
    operator.kill()
    post(job, "worker-1", "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached")
    operator.start()
    assert "because a node pool is at its maximum size" in job.wait_for_condition("Queued", reason="SchedulingTimeout")
    wait_for("the nodes to be released", lambda: job.uids().items().isdisjoint(before.items()))
