"""Threads of commands use the cluster that `--context` and `--kubeconfig` have chosen, and not the default one."""

import socket
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

import pytest

from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube, port_forward
from horovodjob.client.errors import ClientError
from horovodjob.client.jobs import other_cluster, usage
from horovodjob_cli.commands import job_stacks

CHOSEN = kube.Access("other.yaml", "other")
POD: dict[str, Any] = {
    "metadata": {"name": "train-worker-0", "namespace": "team", "labels": {"horovodjob.dev/role": "worker"}},
    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    "status": {"phase": "Running"},
}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[kube.Access]:
    """What the requests to the API server use."""
    found: SimpleQueue[kube.Access] = SimpleQueue()

    def client(access: kube.Access) -> Any:
        found.put(access)
        raise ClientError("no request leaves this test")

    client.cache_clear = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr(kube, "_client", client)
    return found


def in_chosen_cluster(call: Any) -> None:
    """Call this after the choice of a command line, which does not remain."""

    def run() -> None:
        kube.choose(*CHOSEN)
        call()

    copy_context().run(run)


def test_commands_in_several_pods(used: SimpleQueue[kube.Access], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_exec, "streams", lambda: None)
    in_chosen_cluster(lambda: usage.read_gpus([POD, POD]))
    assert [used.get(timeout=60), used.get(timeout=60)] == [CHOSEN, CHOSEN]
    monkeypatch.setattr(kube, "job", lambda *_: {"metadata": {"name": "train"}, "spec": {}})
    monkeypatch.setattr(other_cluster, "pods", lambda _: [POD, POD])
    with pytest.raises(ClientError, match="no request"):
        in_chosen_cluster(lambda: job_stacks.stacks("train"))
    assert [used.get(timeout=60), used.get(timeout=60)] == [CHOSEN, CHOSEN]


def test_a_forwarded_port(used: SimpleQueue[kube.Access]) -> None:
    def connect() -> None:
        with port_forward.forwarded_port(POD, 0, 80) as port, socket.create_connection(("127.0.0.1", port)):
            assert used.get(timeout=60) == CHOSEN

    in_chosen_cluster(connect)
