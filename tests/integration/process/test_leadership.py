"""Leader election: two operators, one leads and the other is on standby."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horovodjob_operator.kube.lease import RENEW_DEADLINE_SECONDS, Lease, lease_client
from horovodjob_operator.kube.requests.authentication import login
from integration.process.leader_election import Pair, credential_of, lease, requests_of, timestamp
from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import (
    LEASE,
    OPERATOR_NAMESPACE,
    OperatorControlPlane,
    operator_kubeconfig,
)
from support.job_driver import submit
from support.operator_process import Operator
from support.progress_client import post, token_of

# The takeover time after a crash in docs/operations.md.
TAKEOVER_SECONDS = timedelta(seconds=15)
# The minimum time until a Lease expires that its holder did not release.
LEASE_SECONDS_LEFT = timedelta(seconds=RENEW_DEADLINE_SECONDS)


def has_written(operator: Operator) -> bool:
    return any(call.split()[0] in ("create", "patch") and "leases" not in call for call in operator.requests())


def test_only_the_leader_acts(pair: Pair, api: Api, namespace: str) -> None:
    submit(api, namespace).advance_to("Succeeded")
    assert (pair[0].is_leader, pair[1].is_leader) == (True, False)
    assert (has_written(pair[0]), has_written(pair[1])) == (True, False)
    assert [pair[1].get(path)[0] for path in ("/healthz", "/readyz")] == [200, 200]


def test_a_standby_neither_lists_nor_watches_jobs_and_pods_until_it_leads(
    pair: Pair, control_plane: OperatorControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    def watched() -> set[str]:
        requests = requests_of(control_plane, credential_of(tmp_path / "two.yaml"))
        reads = (f"{verb} {resource}" for verb in ("list", "watch") for resource in ("pods", "horovodjobs"))
        return {*reads} & {*requests}

    job = submit(api, namespace).advance_to("Running")
    assert (pair[1].get("/readyz")[0], watched()) == (200, set())
    assert pair[0].stop() == 0
    job.end("launcher", 0)
    job.wait("Succeeded")
    assert {"watch pods", "watch horovodjobs"} <= watched()


def test_the_standby_takes_over_when_the_leader_is_killed(pair: Pair, api: Api, namespace: str) -> None:
    running = submit(api, namespace, "running").advance_to("Running")
    wait_for("its event", lambda: running.events()["Started"])
    undisturbed = (running.get(), running.uids())
    job = submit(api, namespace).advance_to("Starting")
    pair[0].kill()
    before = lease(api)
    job.run_workers()
    wait_for("the hosts, from the standby", lambda: job.hosts)
    after = lease(api)
    assert (before["holderIdentity"], after["holderIdentity"]) == ("one", "two")
    assert timestamp(after["acquireTime"]) - timestamp(before["renewTime"]) <= TAKEOVER_SECONDS
    job.run()
    job.wait("Running")
    assert (running.get(), running.uids()) == undisturbed
    running.end("launcher", 0)
    running.wait("Succeeded")
    wait_for("the last event", lambda: running.events()["Succeeded"])
    assert set(running.events().values()) == {1}


def test_the_standby_takes_over_at_once_when_the_leader_shuts_down(pair: Pair, api: Api, namespace: str) -> None:
    assert pair[0].stop() == 0
    stopped_at = datetime.now(UTC)
    assert lease(api)["holderIdentity"] in ("", "two")
    wait_for("the standby to lead", lambda: pair[1].is_leader)
    assert timestamp(lease(api)["acquireTime"]) - stopped_at < LEASE_SECONDS_LEFT
    submit(api, namespace).advance_to("Running")


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


def test_a_standby_leaves_reports_to_the_leader(pair: Pair, api: Api, namespace: str) -> None:
    job = submit(api, namespace).advance_to("Running")
    token = token_of(job)
    assert (post(pair[1], token), post(pair[0], token)) == (503, 204)
    assert pair[1].reports() == {"not_leader": 1}


def test_a_standby_ends_cleanly_while_it_waits(pair: Pair, api: Api, namespace: str) -> None:
    assert pair[1].stop() == 0
    assert lease(api)["holderIdentity"] == "one"
    submit(api, namespace).advance_to("Succeeded")
