"""Pods on the scratch cluster, and connections between them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from local_cluster.scratch import CLUSTER, eventually, kubectl, pod

HERE, THERE = "here", "there"
PORTS = {80, 81, 443}
LISTEN = """
import select, socket, sys
servers = [socket.create_server(("", int(port)), backlog=1000) for port in sys.argv[1:]]
print("listening", flush=True)
while True:
    for ready in select.select(servers, [], [])[0]:
        ready.accept()[0].close()
"""
# A dropped first packet is sent again after a second: a client that connects only then counts as blocked.
# struct tcp_info has the number of packets that were sent again at this place.
CONNECT = """
import os, socket, sys, threading
def connect(address, port, seconds):
    try:
        with socket.create_connection((address, int(port)), timeout=float(seconds)) as connection:
            information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    except OSError:
        return
    if int.from_bytes(information[100:104], sys.byteorder) == 0:
        os.write(1, f"{port}\\n".encode())
for port in sys.argv[3:]:
    threading.Thread(target=connect, args=(sys.argv[2], port, sys.argv[1])).start()
"""
SHORT_SECONDS = 0.9
LONG_SECONDS = 300


class Pod:
    """A running pod, with access to its network namespace."""

    def __init__(self, namespace: str, name: str, labels: dict[str, str] | None = None, **container: Any) -> None:
        self.where = ("--namespace", namespace)
        kubectl(*self.where, "create", "--filename=-", stdin=pod(name, labels, **container))
        path = "jsonpath={.metadata.uid} {.status.podIP}"
        assert eventually(lambda: " 1" in kubectl(*self.where, "get", "pod", name, "--output", path))
        uid, self.address = kubectl(*self.where, "get", "pod", name, "--output", path).split()
        self.inside = ["nsenter", f"--net=/proc/{process_of(uid)}/ns/net", "--"]


def process_of(uid: str) -> str:
    """Any process of a pod."""
    for cgroup in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if f"pod{uid}" in cgroup.read_text():
                return cgroup.parent.name
        except OSError:
            continue
    raise AssertionError(f"no process of pod {uid}")


class PolicyPods:
    """A server that listens on all ports, and clients in several places."""

    def __init__(self) -> None:
        for namespace, team in ((HERE, "red"), (THERE, "blue")):
            kubectl("create", "namespace", namespace)
            kubectl("label", "namespace", namespace, f"team={team}")
        ports = [{"name": "web", "containerPort": 80}, {"name": "tls", "containerPort": 443}]
        self.server = Pod(HERE, "server", {"app": "server"}, ports=ports)
        self.client = Pod(HERE, "client", {"role": "client"})
        unlabelled, remote = Pod(HERE, "unlabelled"), Pod(THERE, "remote", {"role": "remote"})
        self.clients = {
            "client": self.client.inside,
            "unlabelled": unlabelled.inside,
            "remote": remote.inside,
            "outside": [],
            "node": ["nsenter", f"--net={CLUSTER.netns}", "--"],
        }
        self.listening: list[subprocess.Popen[str]] = []
        self.listen(self.server)

    def listen(self, pod: Pod) -> None:
        """Starts a server on all ports in the network of a pod."""
        command = [*pod.inside, sys.executable, "-c", LISTEN, *map(str, PORTS)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.listening.append(server)
        assert server.stdout
        assert server.stdout.readline() == "listening\n"

    def reached(self, pod: Pod) -> dict[str, set[int]]:
        """The ports of a pod that each client reaches now, without the clients that reach none."""
        tries = {name: connecting(inside, pod.address, *PORTS) for name, inside in self.clients.items()}
        ports = {name: set(map(int, done.communicate()[0].split())) for name, done in tries.items()}
        return {name: found for name, found in ports.items() if found}

    def reachability_becomes(self, expected: dict[str, set[int]]) -> bool:
        """Waits until the node reaches all ports of the server, and the clients exactly these."""
        return eventually(lambda: self.reached(self.server) == {**expected, "node": PORTS})


def connecting(inside: list[str], address: str, *ports: int, seconds: float = SHORT_SECONDS) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*inside, sys.executable, "-c", CONNECT, str(seconds), address, *map(str, ports)],
        stdout=subprocess.PIPE,
        text=True,
    )


def reaches(client: Pod, address: str, *ports: int) -> bool:
    """Whether the client reaches all these ports; on a busy machine a single try may be too slow."""
    return len(connecting(client.inside, address, *ports).communicate()[0].split()) == len(ports)


def connects_at_once(client: Pod, address: str, *ports: int) -> bool:
    """Whether the first packet to each port is answered, also on a slow machine."""
    answers = connecting(client.inside, address, *ports, seconds=LONG_SECONDS).communicate()[0]
    return len(answers.split()) == len(ports)
