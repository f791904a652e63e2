"""`hvj job wait`: follows a job to its end and exits with its exit code."""

import json
import os
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.cluster_state import TIME, ClusterState, condition
from cli.program import Hvj, hvj_process, terminal
from cli.proxy import proxy
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Object

ERROR = {"time": TIME, "attempt": 1, "pod": "train-worker-1", "node": "tvm-1", "container": "worker"}
TRAINING = {"epoch": 3, "epochs": 25, "progress": 0.13, "percent": "13%", "metrics": {"loss": 1.125}, "eta": TIME}


@pytest.fixture
def job(cluster: ClusterState) -> Object:
    """A job that runs."""
    cluster.create()
    return cluster.run()


@pytest.mark.parametrize(("exit_code", "code"), [(3, 3), (-9, 247), (None, 255), (0, 255)])
def test_wait_exits_with_the_exit_code_of_a_failed_job(
    hvj: Hvj, cluster: ClusterState, job: Object, exit_code: int | None, code: int
) -> None:
    cluster.fail(exit_code=exit_code)
    assert hvj("job", "wait", "-n", "train").code == code


def test_wait_follows_the_job_until_it_succeeds(cluster: ClusterState, job: Object) -> None:
    with hvj_process("job", "wait", "-n", "train", "--interval", "15") as process:
        assert process.stderr
        assert process.stderr.readline().endswith(" Running\n")
        cluster.succeed()
        stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (0, "")
    assert stderr.endswith(" Succeeded, exit code 0\n")


def test_transitions_are_printed_with_their_reason(cluster: ClusterState, job: Object) -> None:
    with hvj_process("job", "wait", "-n", "train") as process:
        assert process.stderr
        process.stderr.readline()
        waiting = condition("Reconciling", "WaitingForNodes", "0/2 pods have a node")
        cluster.report(phase="Queued", executionState="queued", restarts=1, attempt=2, conditions=[waiting])
        assert process.stderr.readline().endswith(" Queued (attempt 2): 0/2 pods have a node\n")


def test_wait_names_the_queue_and_what_the_job_waits_for_there(cluster: ClusterState) -> None:
    job = cluster.create()
    message = "insufficient unused quota for cpu in flavor spot, 400m more needed"
    waits = [condition(kind, "WaitingForQuota", message) for kind in ("Queued", "Reconciling")]
    queued = {"phase": "Queued", "executionState": "queued", "conditions": waits}
    cluster.report(job["metadata"]["name"], queue={"name": "gpus", "position": 3}, **queued)
    with terminal("job", "wait", "-n", "train", columns=200) as screen:
        screen.until(f"Queued in queue gpus: {message}")
        screen.until("Queued  queue gpus, position 3")
        cluster.succeed()
        assert screen.end() == 0


def test_a_failure_prints_the_errors_with_the_last_log_lines(hvj: Hvj, cluster: ClusterState, job: Object) -> None:
    words = condition("Failed", "BackoffLimitExceeded", "the job failed 4 times")
    error = {**ERROR, "reason": "RankFailed", "exitCode": 3, "message": "rank 1 ended\nImportError: keras"}
    cluster.fail(exit_code=3, errors=[error], conditions=[words])
    assert hvj("job", "wait", "-n", "train", "--quiet").stderr.splitlines() == [
        "error: job train failed: the job failed 4 times",
        "  attempt 1, RankFailed, exit code 3: pod train-worker-1 node tvm-1 container worker: rank 1 ended",
        "    ImportError: keras",
    ]


def test_a_job_that_is_deleted_during_the_wait_is_not_found(cluster: ClusterState, job: Object) -> None:
    with hvj_process("job", "wait", "-n", "train") as process:
        assert process.stderr
        process.stderr.readline()
        cluster.api.delete(f"{cluster.jobs}/train")
        _, stderr = process.communicate()
    assert process.returncode == 3
    assert stderr == f"error: job train was deleted from workspace {cluster.namespace}\n"


def test_wait_continues_after_an_interrupted_connection(cluster: ClusterState, job: Object, tmp_path: Path) -> None:
    address = urlsplit(cluster.api.server).netloc
    with proxy(address) as way:
        kubeconfig = tmp_path / "kubeconfig"
        text = Path(os.environ["KUBECONFIG"]).read_text()
        kubeconfig.write_text(text.replace(address, f"127.0.0.1:{way.port}"))
        with hvj_process("job", "wait", "-n", "train", "--kubeconfig", str(kubeconfig)) as process:
            assert process.stderr
            process.stderr.readline()
            cluster.report(phase="Restarting", executionState="queued")
            assert process.stderr.readline().endswith(" Restarting\n")  # the watch is established
            way.cut()
            cluster.succeed()
            assert process.wait() == 0


def test_an_interrupt_ends_the_wait_at_once_and_does_not_change_the_job(cluster: ClusterState, job: Object) -> None:
    with hvj_process("job", "wait", "-n", "train") as process:
        assert process.stderr
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate() == ("", "\n")
    assert process.returncode == 130
    assert cluster.api.get(f"{cluster.jobs}/train")["status"]["phase"] == "Running"


def test_a_terminal_shows_workers_epoch_loss_and_eta_in_80_columns(cluster: ClusterState, job: Object) -> None:
    cluster.report(training=TRAINING)
    with terminal("job", "wait", "-n", "train") as screen:
        screen.until("Running  workers 2/2  epoch 3/25  13%  loss 1.125  ETA ")
        cluster.succeed()
        assert screen.end() == 0


def test_wait_never_lists_jobs(cluster: ClusterState, job: Object, control_plane: ControlPlane) -> None:
    with hvj_process("job", "wait", "-n", "train") as process:
        assert process.stderr
        process.stderr.readline()
        cluster.succeed()
        process.communicate()
    requests = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
    mine = [each for each in requests if each.get("objectRef", {}).get("namespace") == cluster.namespace]
    assert {each["verb"] for each in mine if each.get("userAgent") == "hvj"} == {"get", "watch"}
