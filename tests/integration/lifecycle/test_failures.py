"""Failures and disruptions of pods: the status, and the next attempt."""

from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any

import pytest

from support.api_client import ApiError, Object, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]


def last_error(job: Job) -> Object:
    error: Object = job.status["errors"][-1]
    return error


def test_a_failed_rank_is_reported_with_its_exit_code_and_last_log_lines(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    job.end("launcher", 3, message="ValueError: loss is NaN")
    status = job.wait("Restarting")
    assert (status["exitCode"], status["restarts"], status["attempt"]) == (3, 1, 2)
    error = last_error(job)
    expected = {"pod": "train-launcher", "node": "node-1", "container": "launcher", "exitCode": 3, "attempt": 1}
    assert {key: error[key] for key in expected} == expected
    assert (error["reason"], error["message"]) == ("RankFailed", "ValueError: loss is NaN")


def test_the_end_at_the_progress_deadline_is_reported_with_the_sentence_of_the_watch(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"progressDeadlineSeconds": 60}).advance_to("Running")
    sentence = "no step since 14:32:10Z: rank 1 on train-worker-1 is stopped; the attempt ends after 60 s"
    job.end("launcher", 137, message=f"[1,0]<stderr>:horovodjob: ProgressDeadlineExceeded: {sentence}\nmpirun: ended")
    status = job.wait("Restarting")
    assert (status["restarts"], status["preemptions"]) == (1, 0)
    error = last_error(job)
    assert error["reason"] == "ProgressDeadlineExceeded"
    assert sentence in error["message"]


def test_the_next_attempt_waits_ten_seconds_and_keeps_healthy_workers(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    before = job.uids()
    job.end("launcher", 1)
    failed = datetime.fromisoformat(job.wait("Restarting")["errors"][-1]["time"])
    assert job.uids().get("launcher") in (None, before["launcher"]), "the delay has not passed"
    wait_for("the next launcher", lambda: job.uids().get("launcher") not in (None, before["launcher"]))
    launcher = job.pods()["launcher"]
    made = datetime.fromisoformat(launcher["metadata"]["creationTimestamp"])
    assert (made - failed).total_seconds() >= 10
    assert launcher["metadata"]["labels"]["horovodjob.dev/attempt"] == "2"
    after = job.uids()
    assert {role: after[role] for role in ("worker-0", "worker-1")} == {
        role: before[role] for role in ("worker-0", "worker-1")
    }
    job.schedule()
    job.run()
    job.wait("Running")
    wait_for("the event", lambda: job.events()["Started"] == 2)


def test_a_worker_deleted_with_its_node_is_replaced_and_reported(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node gone"}
    job.report("worker-1", phase="Failed", conditions=[gone])
    try:
        job.delete_pod("worker-1")
    except ApiError as error:
        if error.status != 404:  # the operator can delete the failed pod first
            raise
    status = job.wait("Restarting")
    assert (status["preemptions"], status["restarts"]) == (1, 0)
    assert (last_error(job)["reason"], last_error(job)["node"]) == ("NodeLost", "node-1")


def test_the_eviction_of_a_spot_node_causes_one_restart(submit_job: Submit) -> None:
    """AKS receives a notice 30 seconds before the eviction, and drains the node."""
    job = submit_job(spot=True, worker={"replicas": 3, "gpus": 0}).advance_to("Running")
    before = job.uids()
    job.evict("worker-1")
    job.wait("Restarting")
    job.evict("worker-2")
    job.skip_backoff()
    status = job.advance_to("Running", since="Queued").status
    assert (status["attempt"], status["preemptions"], status["restarts"]) == (2, 1, 0)
    (error,) = status["errors"]
    assert (error["reason"], error["pod"], error["node"]) == ("Evicted", "train-worker-1", "node-1")
    assert error["message"] == "worker 1 was evicted from node node-1: EvictionByEvictionAPI"
    assert {role for role, uid in job.uids().items() if uid == before[role]} == {"worker-0"}


def test_a_worker_on_an_unreachable_node_is_reported_and_replaced_after_its_deletion(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    worker = f"{job.pods_path}/train-worker-1"
    kept = job.uids()["worker-0"]
    taint = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "NoExecute"}
    job.report("worker-1", conditions=[taint])
    job.api.patch(worker, {"metadata": {"finalizers": ["example.com/no-kubelet"]}})
    job.delete_pod("worker-1")
    job.skip_backoff()
    assert last_error(job)["message"] == "worker 1 was evicted from node node-1: DeletionByTaintManager"
    job.wait_for_pods(["launcher"])
    wait_for("the message", lambda: "waiting for pod train-worker-1" in job.condition("Reconciling")["message"])
    assert job.condition("Reconciling")["message"].endswith(
        ": if that node does not respond, delete it or taint it node.kubernetes.io/out-of-service"
    )
    assert (job.phase, job.status["attempt"], job.hosts) == ("Restarting", 2, "")
    job.api.patch(worker, {"metadata": {"finalizers": None}})
    job.advance_to("Running", since="Queued")
    assert (job.uids()["worker-0"], job.status["preemptions"], job.status["restarts"]) == (kept, 1, 0)


def test_an_unreachable_worker_is_a_disruption_and_no_host_of_the_next_attempt(
    submit_job: Submit,
) -> None:
    job = submit_job(runPolicy={"backoffLimit": 0}).advance_to("Running")
    worker, kept = f"{job.pods_path}/train-worker-1", job.uids()["worker-0"]
    address = job.pods()["worker-1"]["status"]["podIP"]
    job.api.patch(worker, {"metadata": {"finalizers": ["example.com/no-kubelet"]}})
    job.end("launcher", 1, message=f'{{"unreachable":"{address} "}}')
    job.skip_backoff()
    wait_for("the next launcher", lambda: attempts(job) == {"launcher": "2"})
    error = last_error(job)
    assert (error["reason"], error["pod"], error["node"]) == ("NodeLost", "train-worker-1", "node-1")
    assert (job.phase, job.hosts) == ("Restarting", "")
    job.api.patch(worker, {"metadata": {"finalizers": None}})
    status = job.advance_to("Running", since="Queued").status
    assert (status["attempt"], status["preemptions"], status["restarts"]) == (2, 1, 0)
    assert job.uids()["worker-0"] == kept
    assert address not in job.hosts


def test_a_node_that_ends_attempts_is_avoided_and_after_three_in_a_row_named_in_an_event(submit_job: Submit) -> None:
    job = submit_job()
    for since in ("", "Queued", "Queued"):
        job.advance_to("Running", since=since)
        job.report("worker-1", phase="Failed", reason="UnexpectedAdmissionError", message="no healthy GPU")
        status = job.wait("Restarting")
        job.skip_backoff()
    assert last_error(job)["failedNodes"] == ["node-1"]
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert "; attempt 4 avoids node node-1 (Evicted in attempt 3) and starts at " in ready["message"]
    wait_for("the event", lambda: job.events()["NodeFails"] == 1)
    for role, pod in job.wait_for_pods().items():
        preferred = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
        if role != "worker-0":  # it stays from the first attempt
            (only,) = preferred["preferredDuringSchedulingIgnoredDuringExecution"]
            assert only["preference"]["matchFields"][0]["values"] == ["node-1"]


def test_exit_codes_that_the_job_names_end_it_at_once(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"failOnExitCodes": [3]}).advance_to("Running")
    job.end("launcher", 3)
    status = job.wait("Failed")
    assert (status["restarts"], status["exitCode"]) == (0, 3)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_job_fails_at_its_backoff_limit(submit_job: Submit, limit: int) -> None:
    job = submit_job(runPolicy={"backoffLimit": limit}).advance_to("Running")
    for _ in range(limit):
        job.end("launcher", 2)
        job.skip_backoff()
        wait_for("the next launcher", lambda: attempts(job) == {"launcher": "2"})
        job.schedule()
        job.run()
        job.wait("Running")
    job.end("launcher", 2, message="boom")
    status = job.wait("Failed")
    assert (status["restarts"], len(status["errors"]), status["exitCode"]) == (limit, limit + 1, 2)
    assert job.condition("Failed")["reason"] == "BackoffLimitExceeded"
    reason = f"RankFailed: mpirun ended with exit code 2; attempt {limit + 1}; runPolicy.backoffLimit is {limit}"
    assert job.condition("Failed")["message"] == f"boom ({reason})"
    wait_for("the event", lambda: job.events()["Failed"] == 1)


def test_the_second_backoff_is_twice_the_first(submit_job: Submit) -> None:
    job = submit_job().advance_to("Running")
    job.api.patch(f"{job.path}/status", {"status": {"restarts": 1}})
    job.end("launcher", 1)
    job.wait("Restarting")
    message = job.condition("Reconciling")["message"]
    failed = datetime.fromisoformat(last_error(job)["time"])
    assert message.endswith(tuple(f" at {failed + timedelta(seconds=s):%H:%M:%SZ}" for s in (20, 21)))


def attempts(job: Job) -> dict[str, str]:
    """Attempts of the pods by role."""
    launchers = ((role, pod) for role, pod in job.pods().items() if role == "launcher")
    return {role: pod["metadata"]["labels"]["horovodjob.dev/attempt"] for role, pod in launchers}


def disruption_condition(reason: str = "EvictionByEvictionAPI") -> Object:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "drained"}]}


@pytest.mark.parametrize(
    ("end", "reason", "taken"),
    [
        ({"code": 143, **disruption_condition()}, "Evicted", True),
        ({"code": 137, "evicted": "its own limit"}, "WorkerLost", False),
    ],
    ids=["drained", "own storage"],
)
def test_a_terminated_worker_is_replaced_and_its_cause_is_reported(
    submit_job: Submit, end: dict[str, Any], reason: str, taken: bool
) -> None:
    job = submit_job().advance_to("Running")
    before = job.uids()
    job.end("worker-1", **end)
    status = job.wait("Restarting")
    assert (last_error(job)["reason"], last_error(job)["pod"]) == (reason, "train-worker-1")
    assert (status["restarts"], status["preemptions"]) == ((0, 1) if taken else (1, 0))
    wait_for("the finished worker to be deleted", lambda: job.uids().get("worker-1") != before["worker-1"])
    assert job.uids()["worker-0"] == before["worker-0"]
    wait_for("the event", lambda: job.events()["Preempted" if taken else "Restarting"] == 1)


@pytest.mark.parametrize("role", ["worker-0", "launcher"])
def test_a_deleted_pod_does_not_count_towards_the_backoff_limit(submit_job: Submit, role: str) -> None:
    job = submit_job(runPolicy={"backoffLimit": 0}).advance_to("Running")
    before = job.uids()
    job.delete_pod(role)
    status = job.wait("Restarting")
    assert (status["restarts"], status["preemptions"]) == (0, 1)
    assert last_error(job)["reason"] == ("LauncherFailed" if role == "launcher" else "WorkerLost")
    job.skip_backoff()
    wait_for("another one", lambda: job.uids().get(role) not in (None, before[role]))
    job.schedule()
    job.run()
    job.wait("Running")


def test_a_worker_deleted_before_the_hosts_are_published_is_created_again(submit_job: Submit) -> None:
    job = submit_job()
    before = job.uids() if job.wait_for_pods() else {}
    job.wait("Queued")
    job.delete_pod("worker-1")
    wait_for("another one", lambda: job.uids().get("worker-1") not in (None, before["worker-1"]))
    job.advance_to("Succeeded")
    assert (job.status["attempt"], job.status.get("errors", [])) == (1, [])


def test_the_condition_contains_the_message_of_the_scheduler(submit_job: Submit) -> None:
    job = submit_job()
    job.wait_for_pods()
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    job.report("worker-0", conditions=[unschedulable])
    wait_for("the message", lambda: job.condition("Queued").get("message") == f"waiting for nodes: {words}")
    assert job.condition("Queued")["reason"] == "WaitingForNodes"


def test_a_node_that_rejects_each_pod_delays_the_next_attempt_more_each_time(submit_job: Submit) -> None:
    job = submit_job(worker={"replicas": 1, "gpus": 0})
    delays = []
    for attempt in (1, 2):
        wait_for("the launcher", lambda attempt=attempt: attempts(job).get("launcher") == str(attempt))  # type: ignore[misc]
        job.schedule()
        job.report("worker-0", phase="Failed", reason="UnexpectedAdmissionError", message="device plugin is broken")
        wait_for("the next attempt", lambda attempt=attempt: job.status.get("attempt") == attempt + 1)  # type: ignore[misc]
        message = str(job.condition("Ready")["message"])
        ended_at = datetime.fromisoformat(last_error(job)["time"])
        delays.append((datetime.combine(ended_at, time.fromisoformat(message[-9:])) - ended_at) % timedelta(days=1))
    assert delays == [timedelta(seconds=10), timedelta(seconds=20)]
    cause = "Evicted: worker 0 was rejected by node node-1: device plugin is broken"
    assert message.startswith(
        f"attempt 2 ended, the second disruption in a row, {cause}; attempt 3 avoids node node-1 ("
    )
