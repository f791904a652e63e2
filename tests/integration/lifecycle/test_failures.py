"""Failures and disruptions of pods: the reason in the status, what counts, and the next attempt."""

from collections.abc import Callable
from typing import Any

from support.api_client import Object, wait_for
from support.job_driver import Job

Submit = Callable[..., Job]
Happen = Callable[[Job], Any]


def last_error(job: Job) -> Object:
    error: Object = job.status["errors"][-1]
    return error


def ends(role: str, code: int, **how: Any) -> Happen:
    """A container of a running job ends."""
    return lambda job: job.end(role, code, **how)


def start_script(role: str, reason: str, message: str) -> Happen:
    """A start script ends its container with this termination message."""
    return lambda job: job.end(role, 1, message=f'{{"reason": "{reason}", "message": "{message}"}}')


def lose_node(job: Job) -> None:
    """The node of a worker is deleted, and its pod with it."""
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node gone"}
    job.report("worker-1", phase="Failed", conditions=[gone])


STALL = "no step since 14:32:10Z: rank 1 on train-worker-1 is stopped; the attempt ends after 60 s"
OUTPUT = f"[1,0]<stderr>:horovodjob: ProgressDeadlineExceeded: {STALL}\nmpirun: ended"
DRAINED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}
# What happens -> the reason of the error, a part of its message, and whether it is a disruption.
ENDS: dict[str, tuple[Happen, str, str, bool]] = {
    "rank": (ends("launcher", 3, message="ValueError: loss is NaN"), "RankFailed", "ValueError: loss is NaN", False),
    "imitation": (start_script("launcher", "Evicted", "not my fault"), "RankFailed", "not my fault", False),
    "deadline": (ends("launcher", 137, message=OUTPUT), "ProgressDeadlineExceeded", STALL, False),
    "ssh": (start_script("launcher", "SshUnavailable", "no answer"), "SshUnavailable", "no answer", False),
    "script": (start_script("launcher", "ScriptNotFound", "no /a.py"), "ScriptNotFound", "no /a.py", False),
    "preparation": (start_script("worker-1", "PreparationFailed", "exit 3"), "PreparationFailed", "exit 3", False),
    "memory": (ends("worker-1", 137, reason="OOMKilled"), "WorkerOutOfMemory", "", False),
    "storage": (ends("worker-1", 137, evicted="its own limit"), "WorkerLost", "its own limit", False),
    "drained": (ends("worker-1", 143, conditions=[DRAINED]), "Evicted", "", True),
    "evicted": (lambda job: job.evict("worker-1"), "Evicted", "worker 1 was evicted from node node-1", True),
    "worker": (lambda job: job.delete_pod("worker-1"), "WorkerLost", "", True),
    "launcher": (lambda job: job.delete_pod("launcher"), "LauncherFailed", "", True),
    "node": (lose_node, "NodeLost", "", True),
}
BEFORE_MPIRUN = ("ssh", "script", "preparation")


def test_each_end_of_a_pod_has_its_reason_and_counts_as_failure_or_disruption(submit_job: Submit) -> None:
    policy = {"deadline": {"runPolicy": {"progressDeadlineSeconds": 60}}}
    jobs = {name: submit_job(name, **policy.get(name, {})) for name in ENDS}
    for name, job in jobs.items():
        job.advance_to("Starting" if name in BEFORE_MPIRUN else "Running")
        if name in BEFORE_MPIRUN:
            job.run_workers()
        ENDS[name][0](job)
    for name, job in jobs.items():
        _, reason, message, is_disruption = ENDS[name]
        status, error = job.wait("Restarting"), last_error(job)
        assert (name, error["reason"], status["restarts"], status["preemptions"]) == (
            name,
            reason,
            int(not is_disruption),
            int(is_disruption),
        )
        assert message in error["message"]
        wait_for("the event", lambda: job.events()["Preempted" if is_disruption else "Restarting"] == 1)  # noqa: B023
    expected = {"pod": "rank-launcher", "node": "node-1", "container": "launcher", "exitCode": 3, "attempt": 1}
    assert {key: last_error(jobs["rank"])[key] for key in expected} == expected


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
