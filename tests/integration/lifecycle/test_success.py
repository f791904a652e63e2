"""A job from its creation to success: phases, API calls, events, log lines and status."""

from collections.abc import Callable
from datetime import datetime, timedelta

from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.control_plane.watch_threads import Recorder
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]


def test_a_job_goes_through_its_phases_with_an_event_and_a_line_of_the_log_for_each(
    submit_job: Submit, recorder: Recorder, operator: Operator
) -> None:
    # The watch of jobs has begun: a new API server can answer the first one that its version is too old.
    submit_job("first", runPolicy={"suspend": True}).wait("Suspended")
    before = operator.requests()
    job = submit_job(worker={"replicas": 2, "gpus": 0, "slots": 3})
    job.wait("Queued")
    job.wait_for_pods()
    wait_for("its pods to be counted", lambda: job.status.get("replicas") == 2)
    job.schedule()
    job.start("worker-1")
    job.wait("Starting")
    assert job.hosts == "", "they are published when every worker has its address"
    job.start("worker-0")
    lines = wait_for("the hosts", lambda: job.hosts).splitlines()
    assert lines == [f"{job.pods()[f'worker-{index}']['status']['podIP']} slots=3" for index in (0, 1)]
    job.wait_for_condition("Prepared")
    job.start("launcher")
    job.wait("Running")
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
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})

    wait_for("the last event", lambda: job.events()["Succeeded"])
    expected = ("Created", "Admitted", "WorkersReady", "Started", "Succeeded")
    assert job.events() == dict.fromkeys(expected, 1)
    recorder.catch_up(job.namespace)
    phases = [version["status"].get("phase", "") for version in recorder.versions[job.uid]]
    assert list(dict.fromkeys(phases)) == ["", "Queued", "Starting", "Running", "Succeeded"]
    assert phases == sorted(phases, key=list(dict.fromkeys(phases)).index)
    asked = {call for call, count in operator.requests().items() if count != before.get(call, 0)}
    assert "create pods" in asked
    written = operator.new_log_lines()
    assert [call for call in asked if call.split()[0] in ("get", "list")] == [], written
    check_log_lines([line for line in written if (line.get("namespace"), line.get("job")) == (job.namespace, job.name)])


def check_log_lines(lines: list[Object]) -> None:
    """One JSON line for each effect, with the job and its namespace."""
    words = [line["message"].partition(":")[0].removeprefix(f"{line['namespace']}/train ") for line in lines]
    assert words == [
        "created the launcher and 2 workers, attempt 1",
        "phase new -> Queued",
        "phase Queued -> Starting",
        "published 2 hosts to the launcher of attempt 1",
        "phase Starting -> Running",
        "phase Running -> Succeeded",
        "deleted the workers",
    ]
    assert all(datetime.fromisoformat(line["time"]).utcoffset() == timedelta() for line in lines)
    fields = {"time", "level", "logger", "message", "namespace", "job"}
    assert {(frozenset(line), line["job"], line["level"]) for line in lines} == {(frozenset(fields), "train", "INFO")}


def run_quickly(job: Job) -> None:
    """Schedules and runs the pods without a wait for the phases in between."""
    job.schedule()
    job.run()
    job.wait("Running")
    job.end("launcher", 0)
    job.wait("Succeeded")
    wait_for("the workers to be deleted", lambda: set(job.pods()) == {"launcher"})
    wait_for("the last event", lambda: job.events()["Succeeded"])


def test_a_quick_job_stays_within_its_budget_of_api_calls(
    submit_job: Submit, control_plane: OperatorControlPlane, recorder: Recorder, namespace: str
) -> None:
    run_quickly(submit_job("first"))  # after it, the namespace has the start scripts
    before = control_plane.calls(namespace)
    job = submit_job(worker={"replicas": 3, "gpus": 0})
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
        "create pods": 4,
        "patch pods": 1,
        "deletecollection pods": 1,
    }


def test_all_objects_belong_to_the_job_and_its_pods_have_the_token_of_a_named_account_alone(
    submit_job: Submit, api: Api, namespace: str
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}}
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    job, named = submit_job(), submit_job("named", serviceAccountName="trainer")
    secret = wait_for("the Secret", lambda: api.find(job.secret_path))
    assert secret["immutable"] is True
    for made in (secret, *job.wait_for_pods().values()):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == (job.uid, True, False)
        labels = made["metadata"]["labels"]
        assert labels["horovodjob.dev/job"] == "train"
        assert labels["app.kubernetes.io/managed-by"] == "horovodjob-operator"
    assert "finalizers" not in job.get()["metadata"]
    for each, token in ((job, False), (named, True)):
        specs: list[Object] = [pod["spec"] for pod in each.wait_for_pods().values()]
        assert {spec["automountServiceAccountToken"] for spec in specs} == {token}


def test_without_a_clean_up_a_terminated_job_stops_its_pods_and_keeps_their_logs(submit_job: Submit) -> None:
    job = submit_job(runPolicy={"cleanPodPolicy": "None"}).advance_to("Running")
    kept = job.uids()
    job.edit_policy(terminate=True)
    job.wait("Failed")
    assert job.uids() == kept
    assert {pod["status"].get("reason") for pod in job.pods().values()} == {"DeadlineExceeded"}
