"""Pods that have a node and do not start: what the kubelet reports of them."""

from collections.abc import Callable

from support.api_client import wait_for
from support.job_driver import Job, timestamp

Submit = Callable[..., Job]
LONG_AGO = "2020-01-01T00:00:00Z"


def warn(job: Job, role: str, reason: str, message: str, **fields: str) -> None:
    """Posts an event about a pod, as a kubelet does."""
    pod = job.wait_for_pods()[role]["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "namespace": job.namespace, "uid": pod["uid"]}
    event = {"metadata": {"generateName": "kubelet-"}, "involvedObject": about, "reason": reason, "message": message}
    job.api.create(f"/api/v1/namespaces/{job.namespace}/events", {**event, "type": "Warning", **fields})


def test_a_missing_pull_secret_is_reported_until_the_image_is_pulled(submit_job: Submit) -> None:
    missing = "Unable to retrieve some image pull secrets (registry); attempting to pull the image may not succeed."
    job, other = (submit_job(name, imagePullSecrets=[{"name": "registry"}]) for name in ("train", "other"))
    for each, time in ((job, timestamp()), (other, LONG_AGO)):
        warn(each, "worker-0", "FailedToRetrieveImagePullSecret", missing, lastTimestamp=time)
        each.advance_to("Starting")
    job.report_waiting("worker-0", "ErrImagePull", "401 Unauthorized")
    message = job.wait_for_condition("Stalled", reason="ImagePullFailed")
    where = f"Secret registry of imagePullSecrets is not in namespace {job.namespace}"
    assert message.startswith(f"pod train-worker-0 cannot get image trainer:1: {where}; kubectl create secret")
    job.run()
    job.wait("Running")
    job.wait_for_condition("Stalled", status="False")

    # An old event is not reported. The second message shows that the reconciliation that wrote the first one has ended.
    for words in ("401 Unauthorized", "403 Forbidden"):
        other.report_waiting("worker-0", "ErrImagePull", words)
        message = f"pod other-worker-0 cannot get image trainer:1: {words}"
        wait_for("the message", lambda message=message: other.condition("Reconciling")["message"] == message)  # type: ignore[misc]
    assert other.condition("Stalled")["status"] == "False"


def test_the_job_waits_for_the_preparation_and_reports_a_failed_mount(submit_job: Submit) -> None:
    job = submit_job(preparation={"command": "true"})
    words = 'MountVolume.SetUp failed for volume "data": secret "nope" not found'
    warn(job, "worker-0", "FailedMount", words)
    job.schedule()
    message = job.wait_for_condition("Ready", status="False", reason="PreparationRunning")
    assert message == "all pods have a node; 2 workers not prepared yet"
    for role in ("launcher", "worker-1"):
        job.start(role, ready=False)
    job.report("worker-0", conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO}])
    message = job.wait_for_condition("Stalled", reason="StorageUnavailable")
    assert message == f"pod train-worker-0 cannot mount its volumes: {words}"
    job.run()
    job.wait_for_condition("Stalled", status="False")
    assert job.wait("Running")["attempt"] == 1
