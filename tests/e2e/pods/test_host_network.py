"""Pods with hostNetwork: their ports are ports of the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

from e2e.access import wait_for
from e2e.namespace import HELD, Namespace

HOST_NETWORK = {"template": {"spec": {"hostNetwork": True}}}
WAIT = f"{HELD}; echo done"


@pytest.fixture
def host_network_namespace(new_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A namespace that allows hostNetwork."""
    made = new_namespace("host-network", "privileged")
    yield made
    made.remove()


def _interface(namespace: Namespace, host_network: bool) -> str:
    """The network interface with the address of a node or a pod."""
    name = f"interface-{host_network}".lower()
    shown = {"name": "show", "image": namespace.image, "command": ["cat", "/proc/net/route"]}
    spec = {"hostNetwork": host_network, "restartPolicy": "Never", "containers": [shown]}
    metadata = {"name": name, "namespace": namespace.name}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    _, *routes = [line.split() for line in wait_for("the routes", lambda: namespace.log(name)).splitlines()]
    path = f"{namespace.core}/pods/{name}"
    address = int(
        IPv4Address(wait_for("its address", lambda: namespace.api.request("GET", path)["status"].get("podIP")))
    )
    # The interface of a reject route is `*`. Addresses are hexadecimal, their first byte is the last.
    fitting = [
        (_number(mask), interface)
        for interface, destination, _, _, _, _, _, mask, *_ in routes
        if interface != "*" and address & _number(mask) == _number(destination)
    ]
    return max(fitting)[1]


def _number(address: str) -> int:
    return int.from_bytes(bytes.fromhex(address), "little")


def test_two_jobs_that_need_the_same_host_port_run_one_after_the_other(host_network_namespace: Namespace) -> None:
    namespace = host_network_namespace
    # A node's interface may have another name than that of its pods.
    names = ",".join(sorted({_interface(namespace, host_network) for host_network in (True, False)}))
    both = [["--mca", f"{part}_tcp_if_include", names] for part in ("oob", "btl")]
    mpi = {"mpi": {"args": [word for words in both for word in words]}}
    namespace.apply(namespace.job("first", WAIT, worker=HOST_NETWORK, **mpi))
    namespace.wait_phase("first", "Running")
    namespace.apply(namespace.job("second", WAIT, worker=HOST_NETWORK, **mpi))

    def is_reported() -> bool:
        return "free ports" in namespace.condition("second", "Ready").get("message", "")

    wait_for("the message of the scheduler", is_reported)
    namespace.release("first-worker-0")
    namespace.wait_phase("first", "Succeeded")
    namespace.wait_phase("second", "Running")
    namespace.release("second-worker-0")
    namespace.wait_phase("second", "Succeeded")
    assert namespace.output("second") == ["done"]


def test_a_launcher_with_the_address_of_a_worker_fails(host_network_namespace: Namespace) -> None:
    roles = {"worker": HOST_NETWORK, "launcher": HOST_NETWORK}
    host_network_namespace.apply(host_network_namespace.job("same", WAIT, runPolicy={"backoffLimit": 0}, **roles))
    (error,) = host_network_namespace.wait_phase("same", "Failed")["errors"]
    assert error["reason"] == "LauncherFailed"
    assert "a worker has the launcher's own address" in error["message"]
    assert "set hostNetwork for workers only" in error["message"]
