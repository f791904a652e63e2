"""`hvj job tensorboard`: the event files of a job, in a pod of it or on this machine."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cli.cluster_state import ClusterState
from cli.job_share import key, service
from cli.job_share import logs as share_logs
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj, hvj_process
from support.api_client import wait_for

__all__ = ["key", "service", "share_logs"]
# The line that TensorBoard writes, and a server that shows the names of the files.
TENSORBOARD = f"""#!{sys.executable}
import functools, http.server, os, sys
directory = sys.argv[sys.argv.index("--logdir") + 1]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)
server = http.server.HTTPServer(("127.0.0.1", 0), handler)
address = f"http://127.0.0.1:{{server.server_port}}/"
open(os.environ["PID_FILE"], "w").write(str(os.getpid()))
print(f"TensorBoard 2.18.0 at {{address}} (Press CTRL+C to quit)", file=sys.stderr, flush=True)
server.serve_forever()
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of PATH with TensorBoard."""
    program = tmp_path / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text(TENSORBOARD)
    program.chmod(0o755)
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program.parent


@pytest.fixture
def logs(tmp_path: Path, cluster: ClusterState, kubelet: Kubelet, programs: Path) -> Iterator[Path]:
    """Directory of the log files of a job that runs."""
    directory = tmp_path / "stdouterr"
    directory.mkdir()
    cluster.pod(cluster.create(), "worker", node=NODE)
    cluster.run()
    kubelet.environment = {**os.environ, "AZ_BATCHAI_STDOUTERR_DIR": str(directory)}
    yield directory
    kubelet.environment = None


def test_tensorboard_runs_in_a_pod_until_ctrl_c(logs: Path, tmp_path: Path) -> None:
    (logs / "tensorboard").mkdir()
    (logs / "tensorboard" / "events.out.tfevents.1").touch()
    with hvj_process("job", "tensorboard", "-n", "train", "--port", "0") as process:
        assert process.stderr
        address = process.stderr.readline().removeprefix("TensorBoard runs in pod train-worker-0: ").strip()
        assert b"events.out.tfevents.1" in urlopen(f"{address}tensorboard/").read()
        pid = int((tmp_path / "pid").read_text())
        process.send_signal(signal.SIGINT)
        assert process.communicate() == ("", "\n")
    assert process.returncode == 130
    wait_for("the end of TensorBoard in the pod", lambda: not Path(f"/proc/{pid}").exists())


def test_without_event_files_and_without_an_answer_the_place_and_the_time_are_named(
    hvj: Hvj, logs: Path, programs: Path
) -> None:
    done = hvj("job", "tensorboard", "-n", "train")
    assert done.code == 1
    assert done.stderr == f"error: TensorBoard in pod train-worker-0 has ended: there are no event files in {logs}\n"
    (logs / "events.out.tfevents.1").touch()
    (programs / "tensorboard").write_text("#!/bin/sh\nexec sleep 600\n")
    done = hvj("job", "tensorboard", "-n", "train", "--timeout", "1s")
    assert (done.code, done.stderr) == (5, "error: TensorBoard did not start within 1 s (--timeout)\n")


def test_the_event_files_of_a_job_that_has_ended_are_shown_on_this_machine(
    hvj: Hvj, key: str, share_logs: Path, cluster: ClusterState, programs: Path
) -> None:
    cluster.succeed()
    (share_logs / "tensorboard").mkdir()
    (programs / "tensorboard").write_text('#!/bin/sh\nls "$2"\n')
    command = ("job", "tensorboard", "-n", "train")
    assert "there are no event files in tensorboard of stdouterr" in hvj(*command).stderr
    (share_logs / "tensorboard" / "events.out.tfevents.1").touch()
    with hvj_process(*command) as process:
        assert process.communicate() == ("events.out.tfevents.1\n", "")
    assert process.returncode == 0
