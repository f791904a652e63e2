"""Pods in the network of their node: their ports are the node's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.network import NODE_INTERFACE
from e2e.access import wait_for
from e2e.install import Target
from e2e.space import Space

HOST_NETWORK = {"template": {"spec": {"hostNetwork": True}}}
WAIT = "until [ -e /tmp/go ]; do sleep 0.1; done; echo done"


@pytest.fixture
def open_space(new_space: Callable[..., Space]) -> Iterator[Space]:
    """A namespace where pods may use the network of their node."""
    made = new_space("host-network", "privileged")
    yield made
    made.remove()


def test_two_jobs_whose_workers_need_the_same_port_of_a_node_run_one_after_the_other(
    open_space: Space, target: Target
) -> None:
    space = open_space
    # The interface of the local cluster's node has another name than that of its pods.
    both = [f"--mca {part}_tcp_if_include eth0,{NODE_INTERFACE}".split() for part in ("oob", "btl")]
    mpi: dict[str, Any] = {"mpi": {"args": [word for words in both for word in words]}} if target.local else {}
    space.apply(space.job("first", WAIT, worker=HOST_NETWORK, **mpi))
    space.wait_phase("first", "Running")
    space.apply(space.job("second", WAIT, worker=HOST_NETWORK, **mpi))

    def told() -> bool:
        return "free ports" in space.condition("second", "Ready").get("message", "")

    wait_for("the scheduler's words", told)
    space.release("first-worker-0")
    space.wait_phase("first", "Succeeded")
    space.wait_phase("second", "Running")
    space.release("second-worker-0")
    space.wait_phase("second", "Succeeded")
    assert "done" in space.output("second")


def test_a_launcher_with_a_workers_address_is_refused_for_ranks_would_run_in_it(open_space: Space) -> None:
    roles = {"worker": HOST_NETWORK, "launcher": HOST_NETWORK}
    open_space.apply(open_space.job("same", WAIT, runPolicy={"backoffLimit": 0}, **roles))
    (error,) = open_space.wait_phase("same", "Failed")["errors"]
    assert error["reason"] == "LauncherFailed"
    assert "a worker has the launcher's own address" in error["message"]
    assert "set hostNetwork for workers only" in error["message"]
