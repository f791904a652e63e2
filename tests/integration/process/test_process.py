"""The operator as a process: crashes, restarts, and changes during downtime."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]
Restart = Callable[..., None]


def test_an_operator_killed_in_each_phase_continues_the_job(submit_job: Submit, operator: Operator) -> None:
    job = submit_job()
    for phase, step in (("Queued", None), ("Starting", job.schedule), ("Running", job.run)):
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
    # An event that was pending at the kill may be missing; none is posted twice.
    assert set(job.events().values()) == {1}


def test_a_running_job_without_a_status_gets_one_in_a_single_write(
    submit_job: Submit, operator: Operator, api: Api, control_plane: OperatorControlPlane
) -> None:
    job = submit_job().advance_to("Running")
    operator.kill()
    api.patch(f"{job.path}/status", {"status": None})
    writes = control_plane.calls(job.namespace)["patch horovodjobs/status"]
    operator.start()
    assert job.wait("Running")["attempt"] == 1
    assert control_plane.calls(job.namespace)["patch horovodjobs/status"] == writes + 1


@pytest.mark.parametrize(
    "killed_when", ["before the first pod", "after the Secret", "between two workers", "before the hosts"]
)
def test_an_operator_killed_between_two_writes_completes_them(
    submit_job: Submit, operator: Operator, api: Api, killed_when: str
) -> None:
    job = submit_job()
    job.wait("Queued")
    job.wait_for_pods()
    wait_for("its event", lambda: job.events()["Created"])
    operator.kill()
    # The state of the cluster, had the operator died at this moment.
    missing = {
        "before the first pod": ("launcher", "worker-0", "worker-1"),
        "after the Secret": ("launcher", "worker-0", "worker-1"),
        "between two workers": ("worker-1",),
        "before the hosts": (),
    }[killed_when]
    for role in missing:
        job.delete_pod(role)
    if killed_when == "before the first pod":
        api.delete(job.secret_path)
    if killed_when == "before the hosts":
        job.schedule()
        for role in ("worker-0", "worker-1"):
            job.start(role)
    operator.start()
    placed = "Starting" if killed_when == "before the hosts" else "Queued"
    job.wait(placed)
    job.advance_to("Succeeded", since=placed)
    assert (job.status["attempt"], job.events()["Created"]) == (1, 1)


def test_a_failure_during_downtime_is_handled_after_the_restart(submit_job: Submit, operator: Operator) -> None:
    job = submit_job().advance_to("Running")
    operator.kill()
    job.end("worker-0", 137, reason="OOMKilled")
    job.end("launcher", 1)
    operator.start()
    assert job.wait("Restarting")["errors"][-1]["reason"] == "WorkerOutOfMemory"


def test_a_job_deleted_during_downtime_is_not_in_the_caches_after_the_restart(
    submit_job: Submit, operator: Operator
) -> None:
    job = submit_job().advance_to("Running")
    operator.kill()
    job.delete()
    wait_for("its pods to be deleted", lambda: job.pods() == {})
    operator.start()
    assert submit_job("next").advance_to("Succeeded").status["exitCode"] == 0
    assert job.pods() == {}


def test_twenty_jobs_at_once_succeed(submit_job: Submit) -> None:
    jobs = [submit_job(f"job-{number}", worker={"replicas": 1, "gpus": 0}) for number in range(20)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(lambda job: job.advance_to("Succeeded"), jobs))
    assert {job.status["restarts"] for job in jobs} == {0}


def test_a_signal_shuts_the_operator_down_gracefully(submit_job: Submit, operator: Operator) -> None:
    job = submit_job().advance_to("Running")
    assert operator.stop() == 0
    assert operator.new_log_lines()[-1]["message"] == "the operator has stopped"
    operator.start()
    job.end("launcher", 0)
    job.wait("Succeeded")


def test_the_operator_survives_a_restart_of_the_api_server(submit_job: Submit, restart_apiserver: Restart) -> None:
    job = submit_job().advance_to("Starting")
    restart_apiserver()
    job.run()
    job.wait("Running")
    job.end("launcher", 0)
    assert job.wait("Succeeded")["attempt"] == 1


def test_a_job_deleted_while_the_watch_is_interrupted_is_removed_from_the_caches(
    submit_job: Submit, operator: Operator, api: Api, restart_apiserver: Restart
) -> None:
    job = submit_job().advance_to("Running")
    kept = submit_job("kept").advance_to("Running")
    assert operator.jobs(job.namespace) == {"Running": 2}
    operator.send(signal.SIGSTOP)
    restart_apiserver()
    job.delete()
    wait_for("the job to be deleted", lambda: api.find(job.path) is None)
    operator.send(signal.SIGCONT)
    wait_for("the job to be removed from the metrics", lambda: operator.jobs(job.namespace) == {"Running": 1})
    kept.end("launcher", 0)
    kept.wait("Succeeded")


def test_an_operator_whose_port_is_in_use_ends_with_one_sentence(operator_access: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        settings = {"KUBECONFIG": str(operator_access), "HOROVODJOB_OPERATOR_HTTP_PORT": str(taken.getsockname()[1])}
        command = [sys.executable, "-m", "horovodjob_operator"]
        ended = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    assert "the operator ends" in ended.stderr.splitlines()[-1]
    assert "address already in use" in ended.stderr.splitlines()[-1]
