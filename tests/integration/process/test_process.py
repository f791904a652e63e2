"""The operator as a process: crashes, restarts, and changes during downtime."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator

Submit = Callable[..., Job]
Restart = Callable[..., None]


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
