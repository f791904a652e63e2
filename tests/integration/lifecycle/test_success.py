"""A job from its creation to success: phases, API calls, events and status."""

from collections.abc import Callable

import pytest

from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.invariants import kstatus
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]


def test_a_job_goes_through_its_phases_in_order(submit_job: Submit, recorder: Recorder) -> None:
    job, before = submit_job(), ""
    for phase in ("Queued", "Starting", "Running", "Succeeded"):
        job.advance_to(phase, since=before)
        before = phase
    wait_for("the recorder", lambda: recorder.versions[job.uid][-1]["status"].get("phase") == "Succeeded")
    phases = [version["status"].get("phase", "") for version in recorder.versions[job.uid]]
    assert list(dict.fromkeys(phases)) == ["", "Queued", "Starting", "Running", "Succeeded"]
    assert phases == sorted(phases, key=list(dict.fromkeys(phases)).index)
    reasons = [
        condition["reason"]
        for version in recorder.versions[job.uid]
        for condition in version["status"].get("conditions", ())
        if condition["type"] == "Ready"
    ]
    assert list(dict.fromkeys(reasons)) == ["WaitingForNodes", "WaitingForWorkers", "RanksRunning", "AllRanksSucceeded"]


def run_quickly(job: Job) -> None:
    """Schedules and runs the pods without a wait for the phases in between."""
    job.schedule()
    job.run()
    job.wait("Running")
    job.end("launcher", 0)
    job.wait("Succeeded")
    wait_for("the workers to be deleted", lambda: set(job.pods()) == {"launcher"})
    wait_for("the last event", lambda: job.events()["Succeeded"])


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_quick_job_stays_within_its_budget_of_api_calls(
    submit_job: Submit, control_plane: OperatorControlPlane, recorder: Recorder, namespace: str, replicas: int
) -> None:
    run_quickly(submit_job("first"))  # after it, the namespace has the start scripts
    before = control_plane.calls(namespace)
    job = submit_job(worker={"replicas": replicas, "gpus": 0})
    run_quickly(job)
    recorder.catch_up(namespace)
    phases = {version["status"].get("phase") for version in recorder.versions[job.uid]} - {None}
    calls = control_plane.calls(namespace) - before
    # Queued and Starting are written, and have events, only if they last on a slow machine.
    assert calls.pop("patch horovodjobs/status") == len(phases)
    lasted = phases - {"Running", "Succeeded"}  # then the pods, their nodes and the hosts are news
    assert calls.pop("create events") <= 2 + 3 * bool(lasted)
    assert calls == {
        "create secrets": 1,
        "create networkpolicies": 1,
        "create pods": replicas + 1,
        "patch pods": 1,
        "deletecollection pods": 1,
    }


def test_in_steady_state_the_operator_neither_lists_nor_gets(submit_job: Submit, operator: Operator) -> None:
    before = operator.requests()
    submit_job().advance_to("Succeeded")
    after = operator.requests()
    asked = {call for call in after if after[call] != before.get(call, 0)}
    assert "create pods" in asked
    assert [call for call in asked if call.split()[0] in ("get", "list")] == []


def test_a_start_with_long_phases_has_an_event_for_each(submit_job: Submit) -> None:
    job = submit_job().advance_to("Starting")
    job.run_workers()
    job.wait_for_condition("Prepared")
    job.start("launcher")
    job.wait("Running")
    job.end("launcher", 0)
    wait_for("the last event", lambda: job.events()["Succeeded"])
    assert job.events() == {"Created": 1, "Admitted": 1, "WorkersReady": 1, "Started": 1, "Succeeded": 1}


def test_each_event_is_posted_once(submit_job: Submit) -> None:
    job = submit_job().advance_to("Succeeded")
    wait_for("the last event", lambda: job.events()["Succeeded"])
    assert set(job.events()) >= {"Started", "Succeeded"}
    assert set(job.events()) <= {"Created", "Admitted", "WorkersReady", "Started", "Succeeded"}
    assert set(job.events().values()) == {1}


def test_the_status_contains_times_sizes_and_the_exit_code(submit_job: Submit) -> None:
    job = submit_job(worker={"replicas": 2, "gpus": 0, "slots": 3}).advance_to("Running")
    wait_for("both workers to be counted", lambda: job.status["workersReady"] == "2/2")
    assert job.status["replicaStatuses"] == {
        "Launcher": {"active": 1, "ready": 1, "succeeded": 0, "failed": 0},
        "Worker": {"active": 2, "ready": 2, "succeeded": 0, "failed": 0},
    }
    assert job.condition("Running")["message"] == "mpirun runs 6 ranks on 2 workers"
    assert job.api.get(f"{job.path}/scale")["status"]["replicas"] == 2
    job.end("launcher", 0)
    status = job.wait("Succeeded")
    assert (status["exitCode"], status["executionState"], status["attempt"]) == (0, "succeeded", 1)
    assert status["startTime"] <= status["runningTime"] <= status["completionTime"]
    assert status["outputPathSegment"] == f"{job.namespace}/experiments/default/jobs/train/{job.uid}"


def test_the_hosts_are_published_when_every_worker_has_its_address(submit_job: Submit) -> None:
    job = submit_job(worker={"replicas": 2, "gpus": 0, "slots": 2})
    job.schedule()
    job.start("worker-1")
    job.wait("Starting")
    assert job.hosts == ""
    job.start("worker-0")
    lines = wait_for("the hosts", lambda: job.hosts).splitlines()
    addresses = [job.pods()[f"worker-{index}"]["status"]["podIP"] for index in (0, 1)]
    assert lines == [f"{address} slots=2" for address in addresses]


def test_unscheduled_pods_are_counted(submit_job: Submit) -> None:
    jobs = [submit_job(f"idle-{number}") for number in range(8)]
    for job in jobs:
        job.wait_for_pods()
    for job in jobs:
        wait_for("its pods to be counted", lambda job=job: job.status.get("replicas") == 2)  # type: ignore[misc]


def test_the_hosts_of_a_large_job_are_in_the_order_of_their_indices(submit_job: Submit) -> None:
    job = submit_job(worker={"replicas": 64, "gpus": 0}).advance_to("Running")
    pods = job.pods()
    addresses = [pods[f"worker-{index}"]["status"]["podIP"] for index in range(64)]
    assert job.hosts.splitlines() == [f"{address} slots=1" for address in addresses]


def test_all_objects_have_the_owner_reference_and_the_labels_of_the_job(submit_job: Submit, api: Api) -> None:
    job = submit_job()
    secret = wait_for("the Secret", lambda: api.find(job.secret_path))
    assert secret["immutable"] is True
    for made in (secret, *job.wait_for_pods().values()):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (job.uid, True, False)
        labels = made["metadata"]["labels"]
        assert labels["horovodjob.dev/job"] == "train"
        assert labels["app.kubernetes.io/managed-by"] == "horovodjob-operator"
    assert "finalizers" not in job.get()["metadata"]


def test_pods_have_no_token_unless_a_service_account_is_named(submit_job: Submit, api: Api, namespace: str) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    plain, named = submit_job("plain"), submit_job("named", serviceAccountName="trainer")
    for job, token in ((plain, False), (named, True)):
        specs: list[Object] = [pod["spec"] for pod in job.wait_for_pods().values()]
        assert {spec["automountServiceAccountToken"] for spec in specs} == {token}


def test_the_kstatus_result_of_every_phase_is_right(submit_job: Submit, operator_process: Operator) -> None:
    operator_process.kill()
    job = submit_job(runPolicy={"backoffLimit": 1})
    assert kstatus([job.get()]) == ["InProgress"]
    operator_process.start()
    for phase, expected in (("Queued", "InProgress"), ("Starting", "InProgress"), ("Running", "Current")):
        {"Queued": lambda: None, "Starting": job.schedule, "Running": job.run}[phase]()
        job.wait(phase)
        assert kstatus([job.get()]) == [expected]
    job.end("launcher", 1)
    job.wait("Restarting")
    assert kstatus([job.get()]) == ["InProgress"]
    job.suspend()
    job.wait("Suspended")
    assert kstatus([job.get()]) == ["Current"]


def test_a_failed_worker_keeps_its_log_and_the_others_are_deleted_with_one_request(
    submit_job: Submit, control_plane: OperatorControlPlane
) -> None:
    job = submit_job(worker={"replicas": 3, "gpus": 0}, runPolicy={"backoffLimit": 0}).advance_to("Running")
    job.end("worker-1", 1)
    job.wait("Failed")
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher", "worker-1"})
    calls = control_plane.calls(job.namespace)
    assert (calls["deletecollection pods"], calls.get("delete pods", 0)) == (1, 0)


def test_without_a_clean_up_a_terminated_job_stops_its_pods_and_keeps_their_logs(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"cleanPodPolicy": "None"}).advance_to("Running")
    kept = job.uids()
    job.edit_policy(terminate=True)
    job.wait("Failed")
    assert job.uids() == kept
    assert {pod["status"].get("reason") for pod in job.pods().values()} == {"DeadlineExceeded"}


def test_without_a_clean_up_a_terminated_job_deletes_the_pods_that_have_no_node(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"cleanPodPolicy": "None"})
    job.schedule(["worker-0"])
    job.wait_for_pods()
    job.edit_policy(terminate=True)
    job.wait("Failed")
    assert set(job.pods()) == {"worker-0"}
