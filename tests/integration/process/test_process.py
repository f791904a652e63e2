"""The operator as a process: crashes, restarts, and changes during downtime."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import OperatorControlPlane
from support.job_driver import Job
from support.operator_process import Operator


def test_what_happened_while_the_operator_was_down_is_handled_after_its_start(
    submit_job: Callable[..., Job], operator: Operator, api: Api, control_plane: OperatorControlPlane
) -> None:
    names = ("without-status", "failed", "deleted", "kept")
    without_status, failed, deleted, kept = (submit_job(name).advance_to("Running") for name in names)
    assert operator.stop() == 0
    assert operator.new_log_lines()[-1]["message"] == "the operator has stopped"
    api.patch(f"{without_status.path}/status", {"status": None})
    failed.end("worker-0", 137, reason="OOMKilled")
    failed.end("launcher", 1)
    deleted.delete()
    wait_for("its pods to be deleted", lambda: deleted.pods() == {})
    kept_pods = kept.uids()
    writes = control_plane.calls(kept.namespace)["patch horovodjobs/status"]
    operator.start()
    assert without_status.wait("Running")["attempt"] == 1
    assert failed.wait("Restarting")["errors"][-1]["reason"] == "WorkerOutOfMemory"
    assert control_plane.calls(kept.namespace)["patch horovodjobs/status"] == writes + 2, "one write for each"
    wait_for("the jobs", lambda: operator.jobs(kept.namespace) == {"Running": 2, "Restarting": 1})
    assert (deleted.pods(), kept.uids()) == ({}, kept_pods)
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
