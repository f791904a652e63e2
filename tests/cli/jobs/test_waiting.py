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


def test_an_interrupt_ends_the_wait_and_does_not_change_the_job_and_a_deletion_is_reported(
    cluster: ClusterState, job: Object
) -> None:
    with hvj_process("job", "wait", "-n", "train") as process, hvj_process("job", "wait", "-n", "train") as other:
        for each in (process, other):
            each.until(" Running")
        process.send_signal(signal.SIGINT)
        assert (process.communicate(), process.returncode) == (("", "\n"), 130)
        assert cluster.api.get(f"{cluster.jobs}/train")["status"]["phase"] == "Running"
        cluster.api.delete(f"{cluster.jobs}/train")
        words = f"error: job train was deleted from namespace {cluster.namespace}\n"
        assert (other.communicate()[1], other.returncode) == (words, 3)


def test_wait_exits_with_the_exit_code_of_a_failed_job_and_prints_its_errors(
    hvj: Hvj, cluster: ClusterState, job: Object
) -> None:
    for exit_code, code in ((None, 255), (0, 255), (-9, 247)):
        cluster.fail(exit_code=exit_code)
        assert hvj("job", "wait", "-n", "train").code == code
    words = condition("Failed", "BackoffLimitExceeded", "the job failed 4 times")
    error = {**ERROR, "reason": "RankFailed", "exitCode": 3, "message": "rank 1 ended\nImportError: keras"}
    cluster.fail(exit_code=3, errors=[error], conditions=[words])
    done = hvj("job", "wait", "-n", "train", "--quiet")
    assert (done.code, done.stderr.splitlines()) == (
        3,
        [
            "error: job train failed: the job failed 4 times",
            "  attempt 1, RankFailed, exit code 3: pod train-worker-1 node tvm-1 container worker: rank 1 ended",
            "    ImportError: keras",
        ],
    )


def test_wait_prints_transitions_to_the_success_over_connections_that_are_interrupted_and_never_lists_jobs(
    cluster: ClusterState, job: Object, control_plane: ControlPlane, tmp_path: Path
) -> None:
    address = urlsplit(cluster.api.server).netloc
    with proxy(address) as way:
        kubeconfig = tmp_path / "kubeconfig"
        text = Path(os.environ["KUBECONFIG"]).read_text()
        kubeconfig.write_text(text.replace(address, f"127.0.0.1:{way.port}"))
        command = ("job", "wait", "-n", "train", "--interval", "15", "--kubeconfig", str(kubeconfig))
        with hvj_process(*command) as process:
            assert process.stderr
            assert process.stderr.readline().endswith(" Running\n")
            waiting = condition("Reconciling", "WaitingForNodes", "0/2 pods have a node")
            cluster.report(phase="Queued", executionState="queued", restarts=1, attempt=2, conditions=[waiting])
            assert process.stderr.readline().endswith(" Queued (attempt 2): 0/2 pods have a node\n")
            way.cut()  # of the watch, which is established
            cluster.succeed()
            stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (0, "")
    assert stderr.endswith(" Succeeded (attempt 2), exit code 0\n")
    requests = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
    mine = [each for each in requests if each.get("objectRef", {}).get("namespace") == cluster.namespace]
    assert {each["verb"] for each in mine if each.get("userAgent") == "hvj"} == {"get", "watch"}


def test_a_terminal_shows_the_queue_and_then_workers_epoch_loss_and_eta_in_80_columns(cluster: ClusterState) -> None:
    cluster.create()
    waits = [condition(kind, "WaitingForQuota", "400m of cpu more needed") for kind in ("Queued", "Reconciling")]
    queue = {"name": "gpus", "position": 3}
    cluster.report(phase="Queued", executionState="queued", conditions=waits, queue=queue)
    with terminal("job", "wait", "-n", "train") as screen:
        screen.until("Queued in queue gpus: 400m of cpu more needed")
        screen.until("Queued  queue gpus, position 3")
        cluster.run(conditions=[], queue=None, training=TRAINING)
        screen.until("Running  workers 2/2  epoch 3/25  13%  loss 1.125  ETA ")
        cluster.succeed()
        assert screen.end() == 0
