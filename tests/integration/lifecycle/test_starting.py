"""Pods that have a node and do not start, and what their start scripts report."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from support.api_client import Object, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]
LONG_AGO = "2020-01-01T00:00:00Z"


def last_error(job: Job) -> Object:
    error: Object = job.status["errors"][-1]
    return error


def warn(job: Job, role: str, reason: str, message: str, **fields: str) -> None:
    """Posts an event about a pod, as a kubelet does."""
    pod = job.wait_for_pods()[role]["metadata"]
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "namespace": job.namespace, "uid": pod["uid"]}
    event = {"metadata": {"name": reason.lower()}, "involvedObject": about, "reason": reason, "message": message}
    job.api.create(f"/api/v1/namespaces/{job.namespace}/events", {**event, "type": "Warning", **fields})


def test_an_image_that_cannot_be_pulled_is_reported_and_the_job_waits(submit_job: Submit) -> None:
    job = submit_job().advance_to("Starting")
    job.report_waiting("worker-0", "ErrImagePull", "not found")
    job.start("worker-1")
    job.report("worker-0", podIP="10.0.0.2", podIPs=[{"ip": "10.0.0.2"}])
    # The second message shows that the reconciliation that wrote the first one has ended.
    for words in ("try again", 'Back-off pulling image "trainer:1": not found'):
        job.report_waiting("worker-0", "ImagePullBackOff", words)
        message = f"pod train-worker-0 cannot get image trainer:1: {words}"
        wait_for("the message", lambda message=message: job.condition("Reconciling")["message"] == message)  # type: ignore[misc]
    assert (job.condition("Reconciling")["reason"], last_error(job)["reason"]) == ("ImagePullFailed",) * 2
    assert job.hosts == "", "the launcher would wait for a worker that has an address and no sshd"
    job.run()
    assert job.wait("Running")["attempt"] == 1


@pytest.fixture
def job_with_pull_secret_event(submit_job: Submit) -> Callable[[str], Job]:
    """A starting job with a kubelet event of this time: the pull secret of a worker is missing."""

    def job_with_event(time: str) -> Job:
        job = submit_job(imagePullSecrets=[{"name": "registry"}])
        words = "Unable to retrieve some image pull secrets (registry); attempting to pull the image may not succeed."
        warn(job, "worker-0", "FailedToRetrieveImagePullSecret", words, lastTimestamp=time)
        return job.advance_to("Starting")

    return job_with_event


def test_a_missing_pull_secret_is_reported_until_the_image_is_pulled(
    job_with_pull_secret_event: Callable[[str], Job],
) -> None:
    job = job_with_pull_secret_event(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    job.report_waiting("worker-0", "ErrImagePull", "401 Unauthorized")
    message = job.wait_for_condition("Stalled", reason="ImagePullFailed")
    where = f"Secret registry of imagePullSecrets is not in namespace {job.namespace}"
    assert message.startswith(f"pod train-worker-0 cannot get image trainer:1: {where}; kubectl create secret")
    job.run()
    job.wait("Running")
    job.wait_for_condition("Stalled", status="False")


def test_an_old_event_about_a_pull_secret_is_not_reported(job_with_pull_secret_event: Callable[[str], Job]) -> None:
    job = job_with_pull_secret_event(LONG_AGO)
    # The second message shows that the reconciliation that wrote the first one, and checked the event, has ended.
    for words in ("401 Unauthorized", "403 Forbidden"):
        job.report_waiting("worker-0", "ErrImagePull", words)
        message = f"pod train-worker-0 cannot get image trainer:1: {words}"
        wait_for("the message", lambda message=message: job.condition("Reconciling")["message"] == message)  # type: ignore[misc]
    assert job.condition("Stalled")["status"] == "False"


def test_an_image_that_runs_as_root_is_reported_with_the_field_that_allows_it(submit_job: Submit) -> None:
    job = submit_job().advance_to("Starting")
    words = "container has runAsNonRoot and image will run as root"
    job.report_waiting("worker-0", "CreateContainerConfigError", words)
    assert "set spec.podSecurity to Baseline" in job.wait_for_condition("Stalled", reason="InvalidSpec")


def test_a_failed_mount_is_reported_with_the_message_of_the_kubelet(submit_job: Submit) -> None:
    job = submit_job()
    words = 'MountVolume.SetUp failed for volume "data": secret "nope" not found'
    warn(job, "worker-0", "FailedMount", words)
    job.schedule()
    for role in ("launcher", "worker-1"):
        job.start(role, ready=False)
    job.report("worker-0", conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO}])
    message = job.wait_for_condition("Stalled", reason="StorageUnavailable")
    assert message == f"pod train-worker-0 cannot mount its volumes: {words}"
    job.run()
    job.wait_for_condition("Stalled", status="False")


def test_the_job_waits_for_the_preparation(submit_job: Submit) -> None:
    job = submit_job(preparation={"command": "true"})
    job.schedule()
    message = job.wait_for_condition("Ready", status="False", reason="PreparationRunning")
    assert message == "all pods have a node; 2 workers not prepared yet"
    job.run()
    job.wait("Running")


# The start scripts write these messages as the container's termination message.
@pytest.mark.parametrize(
    ("role", "reason", "message"),
    [
        ("launcher", "SshUnavailable", "worker 10.0.0.2 did not answer within 300 s"),
        ("launcher", "ScriptNotFound", "script /train.py is not there"),
        ("worker-1", "PreparationFailed", "preparation.command ended with exit code 3"),
    ],
)
def test_the_report_of_a_start_script_is_the_reason(submit_job: Submit, role: str, reason: str, message: str) -> None:
    job = submit_job().advance_to("Starting")
    job.run_workers()
    words = f'{{"reason": "{reason}", "message": "{message}"}}'
    job.end(role, 1, message=words)
    assert job.wait("Restarting")["restarts"] == 1
    error = last_error(job)
    assert (error["reason"], error["pod"]) == (reason, f"train-{role}")
    assert error["message"].endswith(message)


def test_a_program_cannot_set_a_reason_of_the_operator(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    words: dict[str, Any] = {"message": '{"reason": "Evicted", "message": "not my fault"}'}
    job.end("launcher", 1, **words)
    assert (job.wait("Restarting")["restarts"], last_error(job)["reason"]) == (1, "RankFailed")


def test_a_job_with_a_missing_secret_frees_its_nodes_and_runs_when_the_secret_exists(submit_job: Submit) -> None:
    job = submit_job(scheduling={"timeoutSeconds": 5})
    job.schedule()
    job.report_waiting("worker-0", "CreateContainerConfigError", 'secret "x" not found')
    job.wait_for_condition("Stalled", reason="InvalidSpec")
    message = job.wait_for_condition("Queued", reason="SchedulingTimeout")
    limit = "scheduling.timeoutSeconds, 5 s"
    assert message.startswith(f'pod train-worker-0 could not start for {limit}: secret "x" not found; all pods are')
    wait_for("the pods to be deleted", lambda: job.pods() == {})
    status = job.advance_to("Running", since="Queued").status
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (2, 0, 0)
