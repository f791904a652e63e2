"""`hvj job stacks`, and how commands show a training that makes no progress."""

from pathlib import Path
from typing import Any

import pytest

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj
from cli.service_account import account_kubeconfig
from support.api_client import Api, Object

INPUT = b'  File "/data/train.py", line 31 in load\n'
EXCHANGE = b'  File "/usr/lib/ops.py", line 59 in quick_execute\n'
STALL = "no step since 14:32:10Z: rank 1 (worker 1, node node-1) is stopped; the other rank waits in the exchange"


@pytest.fixture
def job(cluster: ClusterState, kubelet: Kubelet) -> Object:
    """A job with two workers of two ranks each."""
    job = cluster.create(worker={"replicas": 2, "gpus": 0, "slots": 2})
    cluster.run()
    cluster.pod(job, "launcher", node=NODE)
    for index in range(2):
        cluster.pod(job, "worker", index, node=NODE)
    return job


def test_ranks_at_the_same_place_form_a_group(hvj: Hvj, kubelet: Kubelet, job: Object) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], stdin: Any) -> tuple[bytes, bytes, int]:
        asked.append(list(command))
        first = 2 * len(asked) - 2
        place = b", is stopped\n" + INPUT if first else b"\n" + EXCHANGE
        return b"--- rank %d, process 7\n%s--- rank %d, process 9%s" % (first, EXCHANGE, first + 1, place), b"", 0

    kubelet.answer = answer
    done = hvj("job", "stacks", "-n", "train")
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == (
        'rank 3 is stopped, innermost frame first:\nFile "/data/train.py", line 31 in load\n\n'
        'ranks 0-2 (3 ranks), innermost frame first:\nFile "/usr/lib/ops.py", line 59 in quick_execute\n\n'
    )
    assert asked == [["python3", "-m", "horovodjob_trainer.watch.stacks"]] * 2
    asked.clear()
    hvj("job", "stacks", "-n", "train", "--rank", "3")
    assert [command[-1] for command in asked] == ["3", "3"]
    asked.clear()
    done = hvj("job", "stacks", "-n", "train", "--rank", "3", "--rank", "9")
    assert (done.code, done.stdout.count("innermost")) == (0, 2), "this program prints all ranks"
    assert done.stderr == "warning: job train has no rank 9: its ranks are 0 to 3\n"


def test_what_has_no_stacks_and_a_user_who_may_not_run_commands_are_errors(
    hvj: Hvj, kubelet: Kubelet, job: Object, api: Api, viewer: str, tmp_path: Path
) -> None:
    kubelet.answer = lambda command, stdin: (b"", b"", 0)
    done = hvj("job", "stacks", "-n", "train", "--rank", "4")
    assert (done.code, done.stderr) == (1, "error: job train has no rank 4: its ranks are 0 to 3\n")
    assert hvj("job", "stacks", "-n", "train", "--rank", "-1").code == 2
    for answer, words in (
        ((b"", b"", 0), "no pod of job train has stacks of a rank"),
        ((b"", b"No module named x", 1), "ended with exit code 1; the image needs horovodjob_trainer"),
    ):
        kubelet.answer = lambda command, stdin: answer  # noqa: B023
        done = hvj("job", "stacks", "-n", "train")
        assert (done.code, words in done.stderr) == (1, True), done.stderr
    user = account_kubeconfig(api, job["metadata"]["namespace"], tmp_path, viewer, "view")
    done = hvj("job", "stacks", "-n", "train", "--kubeconfig", str(user))
    assert done.code == 1
    assert 'cannot get resource "pods/exec"' in done.stderr
    assert "Traceback" not in done.stderr


def test_a_training_that_stalls_is_what_the_job_shows(hvj: Hvj, cluster: ClusterState, job: Object) -> None:
    times = {"observedGeneration": 1, "lastTransitionTime": "2026-11-26T14:37:10Z"}
    running = {"type": "Running", "status": "True", "reason": "RanksRunning", "message": "mpirun runs 4 ranks"}
    stalled = {"type": "Progressing", "status": "False", "reason": "TrainingStalled", "message": STALL}
    cluster.run(conditions=[{**running, **times}, {**stalled, **times}])
    assert hvj("job", "show", "-n", "train", "--query", "[reason, message]").data == ["TrainingStalled", STALL]
