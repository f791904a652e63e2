"""`hvj job node`: the nodes and pods of a job, and commands in them."""

import socket
import subprocess

import pytest

from cli.cluster_state import ClusterState
from cli.kubelet import NODE, Kubelet
from cli.program import Hvj, hvj_process, terminal
from localcluster.control_plane.standalone import LOOPBACK
from support.api_client import Api, wait_for


@pytest.fixture
def pods(cluster: ClusterState, kubelet: Kubelet) -> None:
    """A job with a launcher and two workers."""
    job = cluster.create()
    cluster.pod(job, "launcher", node=NODE)
    for index in range(2):
        cluster.pod(job, "worker", index, node=NODE)


def test_nodes_are_listed_with_the_columns_of_batch_ai_and_their_pods(hvj: Hvj, pods: None) -> None:
    lines = hvj("job", "node", "list", "-j", "train", "-o", "table").stdout.splitlines()
    assert lines[0].split() == ["ID", "IP", "Pod", "State"]
    assert [line.split() for line in lines[2:]] == [
        [NODE, "10.0.0.4", "train-launcher", "Running"],
        [NODE, "10.0.0.4", "train-worker-0", "Running"],
        [NODE, "10.0.0.4", "train-worker-1", "Running"],
    ]


EXEC = ("job", "node", "exec", "-j", "train")


def test_a_command_runs_on_the_first_worker_or_another_pod_and_its_output_and_exit_code_are_passed_on(
    hvj: Hvj, pods: None, kubelet: Kubelet
) -> None:
    kubelet.answer = lambda command, stdin: (b"out\n", b"err\n", 7)
    for options, command, pod in (
        (("--", "sh", "-c", "exit 7"), ["sh", "-c", "exit 7"], "train-worker-0"),
        (("-n", "worker-1", "--", "true"), ["true"], "train-worker-1"),
        (("-n", NODE, "--", "true"), ["true"], "train-worker-0"),
        (("--exec", "nvidia-smi | head"), ["/bin/sh", "-c", "nvidia-smi | head"], "train-worker-0"),
    ):
        done = hvj(*EXEC, *options)
        assert (done.code, done.stdout, done.stderr) == (7, "out\n", "err\n")
        assert (kubelet.commands[-1], kubelet.pods[-1]) == (command, pod)
    done = hvj(*EXEC, "-n", "tvm-9", "--", "true")
    words = "error: job train has no pod tvm-9 and no pod on such a node; see `hvj job node list -j train`\n"
    assert (done.code, done.stderr) == (3, words)
    done = hvj(*EXEC)
    assert (done.code, "-- nvidia-smi" in done.stderr) == (2, True)


def test_standard_input_reaches_the_command_to_its_end(pods: None, workspace: str, kubelet: Kubelet) -> None:
    kubelet.answer = lambda command, stdin: (stdin, b"", 0)
    text = "ä" * 100_000
    with hvj_process(*EXEC, "-i", "--", "cat", stdin=subprocess.PIPE) as process:
        assert process.communicate(text) == (text, "")


def test_a_shell_in_a_terminal_gets_every_key_and_the_terminal_size(
    pods: None, workspace: str, kubelet: Kubelet
) -> None:
    kubelet.answer = lambda command, stdin: (b"got " + stdin.replace(b"\x03", b"^C"), b"", 5)
    with terminal(*EXEC, "-it", "--", "bash") as screen:
        wait_for("the size of the terminal", lambda: kubelet.sizes)
        screen.type("ls\x03\x04")
        assert screen.end() == 5
    assert "got ls^C" in screen.shown
    assert kubelet.sizes == [{"Width": 80, "Height": 24}]


def test_ports_lead_to_a_pod_until_it_ends(pods: None, cluster: ClusterState, kubelet: Kubelet) -> None:
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_server((LOOPBACK, 0)) as closed:
        ports = [each.getsockname()[1] for each in (server, closed)]
        closed.close()
        forwardings = ("-L", f"0:worker-1:{ports[0]}", "-L", f"0:{ports[1]}")
        with hvj_process(*EXEC, *forwardings) as process:
            assert process.stderr
            lines = [process.stderr.readline() for _ in range(2)]
            assert lines[0].endswith(f" leads to port {ports[0]} of pod train-worker-1\n")
            open_port, refused_port = (int(line.partition(" ")[0].rpartition(":")[2]) for line in lines)
            for text in (b"hello", b"again"):
                with socket.create_connection((LOOPBACK, open_port)) as client:
                    client.sendall(text)
                    connection, _ = server.accept()
                    with connection:
                        assert connection.recv(100) == text
                        connection.sendall(text.upper())
                        assert client.recv(100) == text.upper()
            with socket.create_connection((LOOPBACK, refused_port)) as client:
                assert client.recv(1) == b""
            assert process.stderr.readline().startswith(f"error: port {ports[1]} of pod train-worker-0: ")
            cluster.api.delete(f"{cluster.pods}/train-worker-1")
            sentence = "error: pod train-worker-1 has ended, so its ports are no longer forwarded\n"
            assert process.communicate() == ("", sentence)
    assert process.returncode == 1


def test_ports_are_forwarded_while_a_command_runs(hvj: Hvj, pods: None, kubelet: Kubelet) -> None:
    kubelet.answer = lambda command, stdin: (b"out\n", b"", 7)
    done = hvj(*EXEC, "-L", "0:6006", "--", "true")
    assert (done.code, done.stdout) == (7, "out\n")
    for text in ("6006", "6006:x:y", "70000:1", "1:2:3:4"):
        assert hvj(*EXEC, "-L", text).code == 2
    with socket.create_server((LOOPBACK, 0)) as used:
        done = hvj(*EXEC, "-L", f"{used.getsockname()[1]}:6006")
    assert (done.code, "in use" in done.stderr) == (1, True)


def test_a_kubelet_that_does_not_respond_is_reported_in_one_sentence(hvj: Hvj, cluster: ClusterState, api: Api) -> None:
    api.create("/api/v1/nodes", {"metadata": {"name": cluster.namespace}})
    cluster.pod(cluster.create(), "worker", node=cluster.namespace)
    done = hvj(*EXEC, "--", "true")
    assert (done.code, done.stderr.startswith("error: "), done.stderr.count("\n")) == (1, True, 1)
