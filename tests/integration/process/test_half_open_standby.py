"""A standby whose watch of the pods becomes half-open before it leads: it does not act on what it observed before."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from integration.process.leader_election import Pair, leader_and_standby
from support.api_client import Api, wait_for
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.job_driver import submit
from support.operator_process import Operator


def half_open_pod_watch(request: Request) -> Fault:
    return Fault(is_half_open=request.is_watch and request.path.endswith("/pods"))


@pytest.fixture
def proxies() -> list[FaultProxy]:
    """The proxy between the API server and the standby."""
    return []


@pytest.fixture
def pair(operator_process: Operator, api: Api, tmp_path: Path, proxies: list[FaultProxy]) -> Iterator[Pair]:
    """A leader, and a standby whose watch of the pods, if it has one, is half-open."""
    operator_process.kill()
    with ExitStack() as stack:

        def proxied(kubeconfig: Path) -> Path:
            proxies.append(stack.enter_context(FaultProxy(api, kubeconfig, tmp_path)))
            proxies[0].fault = half_open_pod_watch
            return proxies[0].kubeconfig

        yield stack.enter_context(leader_and_standby(api, tmp_path, proxied))


def test_a_new_leader_does_not_take_pods_that_its_dead_watch_has_not_reported_for_deleted(
    pair: Pair, proxies: list[FaultProxy], api: Api, namespace: str
) -> None:
    job = submit(api, namespace).advance_to("Running")
    pods = job.uids()
    pair[0].kill()
    proxies[0].fault = lambda _: NO_FAULT  # new connections work
    wait_for("the standby to lead", lambda: pair[1].is_leader)
    submit(api, namespace, "new").wait_for_pods()
    status = job.status
    assert (status["phase"], status["preemptions"], status.get("errors", [])) == ("Running", 0, [])
    assert job.uids() == pods
    job.end("launcher", 0)
    assert job.wait("Succeeded")["attempt"] == 1
