"""Fairness between large and small jobs."""

from collections.abc import Callable
from pathlib import Path

from api.client import Api, wait_for
from integration.control_plane import OperatorControlPlane
from integration.job_driver import Job
from integration.operator_process import Operator

WORKERS = 400
RUNNING_JOBS, EVENTS_OF_A_RUNNING_JOB = 6, 4


def test_a_small_job_does_not_wait_for_all_pods_of_a_large_job(
    submit_job: Callable[..., Job], api: Api, control_plane: OperatorControlPlane, namespace: str
) -> None:
    big = submit_job("big", worker={"replicas": WORKERS, "gpus": 0})
    wait_for("its first pod", lambda: api.find(f"{big.pods_path}/big-launcher"))
    small = submit_job("small")
    submitted_at = int(small.get()["metadata"]["resourceVersion"])
    made = [int(pod["metadata"]["resourceVersion"]) for pod in small.wait_for_pods().values()]
    wait_for("all pods", lambda: control_plane.calls(namespace)["create pods"] >= WORKERS + 1 + len(made))
    pods = wait_for("all pods", lambda: pods if len(pods := big.pods()) == WORKERS + 1 else {})
    versions = sorted(int(pod["metadata"]["resourceVersion"]) for pod in pods.values())
    later = [version for version in versions if version > submitted_at]
    # With one queue of requests it would be after all of them. How much earlier it is depends on the machine.
    assert max(made) < later[len(later) * 9 // 10]


def test_a_new_job_does_not_wait_for_the_events_that_a_restarted_operator_posts_again(
    submit_job: Callable[..., Job],
    operator_process: Operator,
    operator_access: Path,
    control_plane: OperatorControlPlane,
    namespace: str,
    tmp_path: Path,
) -> None:
    for number in range(RUNNING_JOBS):
        job = submit_job(f"running-{number}").advance_to("Running")
        wait_for("its last event", lambda: job.events()["Started"])  # noqa: B023
    operator_process.kill()
    new = submit_job("zz-new")
    known = len(control_plane.requests(namespace))
    operator = Operator(operator_access, tmp_path / "log", namespaces=namespace, concurrent_writes="1")
    try:
        operator.start()
        new.wait("Queued")
        posted = RUNNING_JOBS * EVENTS_OF_A_RUNNING_JOB
        wait_for("all events", lambda: control_plane.requests(namespace)[known:].count("create events") > posted)
    finally:
        operator.kill()
    requests = control_plane.requests(namespace)[known:]
    # In the order of their arrival, an event of each running job would precede each request for the new one.
    assert requests[: requests.index("create pods")].count("create events") < posted / 2
