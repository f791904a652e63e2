"""Ports of this machine that lead to ports of a pod, through the API server, as `kubectl port-forward` does."""

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from horovodjob.client.cluster import kube
from horovodjob.client.cluster.connections import streams
from horovodjob.client.cluster.watch import changes
from horovodjob.client.errors import ClientError, UsageError, one_line, to_client_error
from horovodjob.client.messages import message

Object = dict[str, Any]
LOOPBACK = "127.0.0.1"
LOCAL_NAMES = ("", "localhost", LOOPBACK)
MAX_PORT = 65535
CHUNK = 65536
ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Forwarding:
    """A port of this machine (0: any free one), and the host and port that it leads to."""

    local: int
    host: str
    remote: int


def parse_forwarding(text: str) -> Forwarding:
    """LOCAL:REMOTE or LOCAL:HOST:REMOTE, as ssh has it. Raises UsageError."""
    found = re.fullmatch(r"(\d+):(?:([A-Za-z0-9.-]+):)?(\d+)", text)
    if not found or int(found[1]) > MAX_PORT or not 0 < int(found[3]) <= MAX_PORT:
        raise UsageError(
            f"{text!r} is no forwarding; write LOCAL:REMOTE or LOCAL:HOST:REMOTE, as in 6006:localhost:6006"
        )
    return Forwarding(int(found[1]), found[2] or "", int(found[3]))


@contextlib.contextmanager
def forwarded_port(pod: Object, local: int, remote: int) -> Iterator[int]:
    """Forwards a port of the loopback interface to a port of the pod; gives the number of the local port."""
    try:
        listener = socket.create_server((LOOPBACK, local))
    except OSError as error:
        raise ClientError(
            f"port {local} of this machine: {one_line(error.strerror)}; choose another one, or 0"
        ) from None
    # In a new context, the threads would use the default cluster.
    threading.Thread(target=copy_context().run, args=(_accept, listener, pod, remote), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # otherwise the thread stays in accept()
        listener.close()


def wait_for_pod_end(pods: Sequence[Object]) -> None:
    """Raises ClientError when one of these pods of a namespace ends or is deleted."""
    names = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
    selection: Object = {"namespace": pods[0]["metadata"]["namespace"]}
    if len(names) == 1:
        selection["field_selector"] = f"metadata.name={next(iter(names))}"
    present: set[str] = set()
    for change, pod in changes(kube.core().list_namespaced_pod, selection):
        if change == "SYNCED":
            gone = sorted(names.keys() - present)
        else:
            name = pod["metadata"]["name"]
            is_same = names.get(name) == pod["metadata"]["uid"]
            has_ended = change == "DELETED" or pod.get("status", {}).get("phase") in ENDED_PHASES
            present |= {name} if is_same and not has_ended else set()
            gone = [name] if is_same and has_ended else []
        if gone:
            raise ClientError(f"pod {gone[0]} has ended, so its ports are no longer forwarded")


def _accept(listener: socket.socket, pod: Object, remote: int) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the listener is closed
            return
        threading.Thread(target=copy_context().run, args=(_serve, connection, pod, remote), daemon=True).start()


def _serve(connection: socket.socket, pod: Object, remote: int) -> None:
    """Forward one connection until either end closes it; an error is a line on standard error."""
    from kubernetes.client import ApiClient, CoreV1Api

    metadata = pod["metadata"]
    with connection:
        try:
            # `portforward` temporarily changes the client, which other threads use.
            core = CoreV1Api(ApiClient(kube.client().configuration))
            tunnel = streams().portforward(
                core.connect_get_namespaced_pod_portforward, metadata["name"], metadata["namespace"], ports=str(remote)
            )
        except Exception as error:
            message(f"error: {to_client_error(error)}")
            return
        with contextlib.closing(tunnel), contextlib.suppress(OSError):
            _copy(connection, tunnel.socket(remote))
        if problem := tunnel.error(remote):
            message(f"error: port {remote} of pod {metadata['name']}: {one_line(problem)}")


def _copy(one: socket.socket, other: socket.socket) -> None:
    """Copy between both sockets until one is closed."""
    peers = {one.fileno(): (one, other), other.fileno(): (other, one)}
    while True:
        for descriptor in select.select(list(peers), [], [])[0]:
            source, target = peers[descriptor]
            data = source.recv(CHUNK)
            if not data:
                return
            target.sendall(data)
