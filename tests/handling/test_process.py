"""The operator as a process: its ends, its beginnings, its answers, and two of them at once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.client import Api, wait_for
from handling.plane import OPERATOR_NAMESPACE, Plane, served
from handling.player import Job, submit
from handling.process import Operator

Submit = Callable[..., Job]
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/horovodjob-operator"
PREVIOUS = {"Starting": "Queued", "Running": "Starting", "Succeeded": "Running"}
METRICS = (
    "horovodjob_jobs",
    "horovodjob_jobs_created_total",
    "horovodjob_jobs_succeeded_total",
    "horovodjob_jobs_failed_total",
    "horovodjob_restarts_total",
    "horovodjob_queue_duration_seconds",
    "horovodjob_start_duration_seconds",
    "horovodjob_run_duration_seconds",
    "horovodjob_operator_reconcile_duration_seconds",
    "horovodjob_operator_reconcile_errors_total",
    "horovodjob_operator_api_requests_total",
    "horovodjob_operator_watch_age_seconds",
    "horovodjob_operator_leader",
    "horovodjob_operator_progress_reports_total",
    "horovodjob_training_progress_ratio",
    "horovodjob_training_samples_per_second",
)


def test_killed_in_each_phase_it_carries_on_where_it_was(submitted: Submit, operator: Operator) -> None:
    job = submitted()
    for phase, step in (("Queued", None), ("Starting", job.place), ("Running", job.run)):
        if step:
            step()
        job.wait(phase)
        operator.kill()
        operator.start()
    operator.kill()
    job.end("launcher", 0)
    operator.start()
    status = job.wait("Succeeded")
    assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0)
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})
    wait_for("the last event", lambda: job.events()["Succeeded"])
    # One that it was about to tell when it was killed may be missing; none is told again.
    assert set(job.events().values()) == {1}


@pytest.mark.parametrize(
    "moment", ["before the first pod", "after the Secret", "between two workers", "before the hosts"]
)
def test_killed_between_two_writes_it_completes_what_was_begun(
    submitted: Submit, operator: Operator, api: Api, moment: str
) -> None:
    job = submitted()
    job.wait("Queued")
    job.wait_for_pods()
    operator.kill()
    # The world as it would be, had the operator died at this very moment.
    missing = {
        "before the first pod": ("launcher", "worker-0", "worker-1"),
        "after the Secret": ("launcher", "worker-0", "worker-1"),
        "between two workers": ("worker-1",),
        "before the hosts": (),
    }[moment]
    for role in missing:
        job.remove(role)
    if moment == "before the first pod":
        api.delete(f"/api/v1/namespaces/{job.namespace}/secrets/train-mpi")
    if moment == "before the hosts":
        job.place()
        for role in ("worker-0", "worker-1"):
            job.start(role)
    operator.start()
    job.bring_to("Succeeded")
    assert (job.status["attempt"], job.events()["Created"]) == (1, 1)


def test_a_failure_while_it_was_away_is_seen_when_it_is_back(submitted: Submit, operator: Operator) -> None:
    job = submitted().bring_to("Running")
    operator.kill()
    job.end("worker-0", 137, reason="OOMKilled")
    job.end("launcher", 1)
    operator.start()
    assert job.wait("Restarting")["errors"][-1]["reason"] == "WorkerOutOfMemory"


def test_a_job_deleted_while_it_was_away_is_forgotten(submitted: Submit, operator: Operator) -> None:
    job = submitted().bring_to("Running")
    operator.kill()
    job.delete()
    wait_for("its pods to go", lambda: job.pods() == {})
    operator.start()
    assert submitted("next").bring_to("Succeeded").status["exitCode"] == 0
    assert job.pods() == {}


def test_twenty_jobs_at_once_succeed(submitted: Submit) -> None:
    jobs = [submitted(f"job-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(20)]
    for phase in ("Starting", "Running", "Succeeded"):
        for job in jobs:
            job.bring_to(phase, since=PREVIOUS[phase])
    assert {job.status["restarts"] for job in jobs} == {0}


def test_it_says_that_it_is_healthy_and_ready_and_what_it_does(submitted: Submit, operator: Operator) -> None:
    job = submitted().bring_to("Running")
    assert operator.answer("/healthz") == (200, "ok\n")
    assert operator.answer("/readyz") == (200, "ok\n")
    text = operator.answer("/metrics")[1]
    assert [name for name in METRICS if f"# TYPE {name} " not in text and f"# TYPE {name}" not in text] == []
    metrics = operator.metrics()
    assert metrics[f'horovodjob_jobs{{namespace="{job.namespace}",phase="Running"}}'] == 1
    assert metrics["horovodjob_operator_leader"] == 1
    assert metrics['horovodjob_operator_watch_age_seconds{resource="pods"}'] < 60


def test_a_signal_ends_it_soon_and_well(submitted: Submit, operator: Operator) -> None:
    job = submitted().bring_to("Running")
    assert operator.stop(seconds=5) == 0
    operator.start()
    job.end("launcher", 0)
    job.wait("Succeeded")


def test_a_restart_of_the_api_server_is_survived(api: Api, process: Operator, namespace: str, plane: Plane) -> None:
    if not process.runs:
        process.start()
    job = submit(api, namespace).bring_to("Starting")
    plane.restart_apiserver()
    wait_for("the API server", lambda: served(api))
    job.run()
    job.wait("Running", seconds=60)
    job.end("launcher", 0)
    assert job.wait("Succeeded", seconds=60)["attempt"] == 1
    assert process.runs


@pytest.fixture
def pair(process: Operator, operator_access: Path, api: Api) -> Iterator[tuple[Operator, Operator]]:
    """A leader and one that stands by."""
    process.kill()
    if api.find(LEASE):
        api.delete(LEASE)
    settings = {"lease_namespace": OPERATOR_NAMESPACE}
    both = [Operator(operator_access, operator_access.with_name(n), identity=n, **settings) for n in ("one", "two")]
    both[0].start()
    wait_for("a leader", lambda: leads(both[0]))
    both[1].start()
    yield both[0], both[1]
    for each in both:
        each.kill()


def leads(operator: Operator) -> bool:
    return operator.metrics().get("horovodjob_operator_leader") == 1


def wrote(operator: Operator) -> bool:
    return any(call.split()[0] in ("create", "patch") and "leases" not in call for call in operator.requests())


def test_of_two_operators_one_acts(pair: tuple[Operator, Operator], api: Api, namespace: str) -> None:
    submit(api, namespace).bring_to("Succeeded")
    assert (leads(pair[0]), leads(pair[1])) == (True, False)
    assert (wrote(pair[0]), wrote(pair[1])) == (True, False)
    assert pair[1].answer("/readyz")[0] == 200


def test_the_other_takes_over_when_the_leader_is_killed(
    pair: tuple[Operator, Operator], api: Api, namespace: str
) -> None:
    job = submit(api, namespace).bring_to("Starting")
    pair[0].kill()
    job.run_workers()
    wait_for("the hosts, from the other", lambda: job.hosts, seconds=15)
    job.run()
    job.wait("Running")


def test_the_other_takes_over_at_once_when_the_leader_stops(
    pair: tuple[Operator, Operator], api: Api, namespace: str
) -> None:
    assert pair[0].stop() == 0
    wait_for("the other to lead", lambda: leads(pair[1]), seconds=3)
    submit(api, namespace).bring_to("Running")
