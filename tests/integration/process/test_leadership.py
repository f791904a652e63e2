"""Leader election: two operators, one leads and the other is on standby."""

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from horovodjob_operator.kube.lease import Lease, lease_client
from horovodjob_operator.kube.requests.authentication import login
from integration.process.leader_election import Pair, credential_of, lease, requests_of, writes
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import (
    LEASE,
    OPERATOR_NAMESPACE,
    OperatorControlPlane,
    operator_kubeconfig,
)
from support.faults.fault_proxy import NO_FAULT, Fault, FaultProxy, Request
from support.job_driver import submit
from support.operator_process import Operator
from support.progress_client import post, token_of

ROUND_TRIP_SECONDS = 1.5


def test_only_the_leader_acts_and_the_standby_follows_it_at_once_when_it_shuts_down(
    pair: Pair, control_plane: OperatorControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    leader, standby = pair
    credential = credential_of(tmp_path / "two.yaml")

    def watched() -> set[str]:
        reads = (f"{verb} {resource}" for verb in ("list", "watch") for resource in ("pods", "horovodjobs"))
        return {*reads} & {*requests_of(control_plane, credential)}

    job = submit(api, namespace).advance_to("Running")
    assert (leader.is_leader, standby.is_leader) == (True, False)
    assert [standby.get(path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
    assert (watched(), {each for each in writes(control_plane, credential) if "pods" in each}) == (set(), set())
    token = token_of(job)
    assert (post(standby, token), post(leader, token)) == (503, 204)
    assert standby.reports() == {"not_leader": 1}

    assert standby.stop() == 0, "it ends cleanly while it waits"
    assert lease(api)["holderIdentity"] == "one"
    standby.start()
    assert leader.stop() == 0
    assert lease(api)["holderIdentity"] in ("", "two"), "the Lease is released"
    job.end("launcher", 0)
    job.wait("Succeeded")
    assert {"watch pods", "watch horovodjobs"} <= watched()
    assert standby.is_leader


async def test_a_leader_with_a_busy_event_loop_renews_the_lease(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(operator_kubeconfig(api, tmp_path / "kubeconfig")))
    if api.find(LEASE):
        api.delete(LEASE)
    name = LEASE.rpartition("/")[2]
    async with lease_client(login()) as (thread, client):
        elected = Lease(client, OPERATOR_NAMESPACE, name, "busy", lambda: datetime.now(UTC), on_acquired=bool)
        renewing = asyncio.create_task(thread.run(elected.run()))
        await asyncio.sleep(0)
        # Each wait blocks this event loop.
        first = wait_for("the Lease", lambda: api.find(LEASE))["spec"]["renewTime"]
        wait_for("a renewal", lambda: lease(api)["renewTime"] > first)
        renewing.cancel()
        await thread.run(elected.release())


def test_a_leader_stays_the_leader_with_a_slow_api_server_and_lost_responses(
    operator_process: Operator, api: Api, tmp_path: Path
) -> None:
    operator_process.kill()
    if api.find(LEASE):
        api.delete(LEASE)
    lost = threading.Semaphore(2)

    def slow(request: Request) -> Fault:
        return Fault(delay_seconds=ROUND_TRIP_SECONDS) if "/leases" in request.path else NO_FAULT

    def lose_two_responses(request: Request) -> Fault:
        is_renewal = request.method == "PUT" and "/leases" in request.path
        return Fault(reset_after=True) if is_renewal and lost.acquire(blocking=False) else NO_FAULT

    def wait_for_renewals(number: int) -> None:
        for _ in range(number):
            before = lease(api)["renewTime"]
            wait_for("a renewal", lambda: lease(api)["renewTime"] != before or not operator.is_running)  # noqa: B023
        assert operator.is_leader

    with FaultProxy(api, operator_kubeconfig(api, tmp_path / "kubeconfig"), tmp_path) as proxy:
        proxy.fault = slow
        operator = Operator(proxy.kubeconfig, tmp_path / "log", identity="slow", lease_namespace=OPERATOR_NAMESPACE)
        operator.start()
        wait_for("a leader", lambda: operator.is_leader)
        wait_for_renewals(3)
        proxy.fault = lose_two_responses
        wait_for_renewals(4)
        assert not lost.acquire(blocking=False)
        assert lease(api)["holderIdentity"] == "slow"
        operator.kill()
