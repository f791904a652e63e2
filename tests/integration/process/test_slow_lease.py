"""Leader election with a slow API server: there is a leader, and it stays the leader."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.process.leader_election import lease
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import LEASE, OPERATOR_NAMESPACE, operator_kubeconfig
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.operator_process import Operator

ROUND_TRIP_SECONDS = 1.5


@pytest.fixture
def proxy(api: Api, operator_process: Operator, tmp_path: Path) -> Iterator[FaultProxy]:
    operator_process.kill()
    if api.find(LEASE):
        api.delete(LEASE)
    proxy = FaultProxy(api, operator_kubeconfig(api, tmp_path / "kubeconfig"), tmp_path)
    yield proxy
    proxy.close()


@pytest.fixture
def operator(proxy: FaultProxy, tmp_path: Path) -> Iterator[Operator]:
    """An operator that is not started yet."""
    operator = Operator(proxy.kubeconfig, tmp_path / "log", identity="slow", lease_namespace=OPERATOR_NAMESPACE)
    yield operator
    operator.kill()
    print((tmp_path / "log").read_text())  # shown if the test fails


def renewals(api: Api, number: int) -> None:
    """Waits for so many renewals."""
    seen = {lease(api)["renewTime"]}

    def is_renewed() -> bool:
        seen.add(lease(api)["renewTime"])
        return len(seen) > number

    wait_for("the renewals", is_renewed)


def test_a_slow_api_server_has_a_leader(proxy: FaultProxy, operator: Operator, api: Api) -> None:
    proxy.fault = lambda request: Fault(delay_seconds=ROUND_TRIP_SECONDS) if "/leases" in request.path else NO_FAULT
    operator.start()
    wait_for("a leader", lambda: operator.is_leader)
    renewals(api, 3)
    assert operator.is_leader


def test_a_lost_response_to_a_renewal_does_not_end_the_leader(proxy: FaultProxy, operator: Operator, api: Api) -> None:
    lost = threading.Semaphore(2)

    def lose_two_responses(request: Request) -> Fault:
        is_renewal = request.method == "PUT" and "/leases" in request.path
        return Fault(reset_after=True) if is_renewal and lost.acquire(blocking=False) else NO_FAULT

    operator.start()
    wait_for("a leader", lambda: operator.is_leader)
    proxy.fault = lose_two_responses
    renewals(api, 4)
    assert operator.is_leader
    assert not lost.acquire(blocking=False)
    assert lease(api)["holderIdentity"] == "slow"
