"""Two operators: one leads, the other stands by and takes over."""

import asyncio
import base64
import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from api.client import Api, wait_for
from horovodjob_operator.kube.authentication import login
from horovodjob_operator.kube.lease import RENEW_DEADLINE_SECONDS, Lease, lease_client
from integration.control_plane import LEASE, OPERATOR_NAMESPACE, OperatorControlPlane, operator_kubeconfig
from integration.job_driver import submit
from integration.operator_process import Operator
from integration.progress_client import post, token_of

Pair = tuple[Operator, Operator]
# What docs/operations.md promises of a crash.
TAKEN_OVER_WITHIN = timedelta(seconds=15)
# A Lease that was not released lapses no sooner than this after its holder has stopped.
LAPSES_AFTER = timedelta(seconds=RENEW_DEADLINE_SECONDS)


@pytest.fixture
def pair(operator_process: Operator, api: Api, tmp_path: Path) -> Iterator[Pair]:
    """A leader and one that stands by."""
    operator_process.kill()
    if api.find(LEASE):
        api.delete(LEASE)
    # With a token each, by which the audit log tells them apart.
    accesses = [operator_kubeconfig(api, tmp_path / f"{name}.yaml") for name in ("one", "two")]
    one, two = (
        Operator(path, path.with_suffix(".log"), identity=path.stem, lease_namespace=OPERATOR_NAMESPACE)
        for path in accesses
    )
    one.start()
    wait_for("a leader", lambda: one.is_leader)
    two.start()
    yield one, two
    for each in (one, two):
        each.kill()


def has_written(operator: Operator) -> bool:
    return any(call.split()[0] in ("create", "patch") and "leases" not in call for call in operator.requests())


def lease(api: Api) -> dict[str, str]:
    """The spec of the Lease: who holds it, since when, and when it was renewed last."""
    spec: dict[str, str] = api.get(LEASE)["spec"]
    return spec


def timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_only_the_leader_acts(pair: Pair, api: Api, namespace: str) -> None:
    submit(api, namespace).advance_to("Succeeded")
    assert (pair[0].is_leader, pair[1].is_leader) == (True, False)
    assert (has_written(pair[0]), has_written(pair[1])) == (True, False)
    assert pair[1].get("/readyz")[0] == 200


def test_the_standby_takes_over_when_the_leader_is_killed(pair: Pair, api: Api, namespace: str) -> None:
    running = submit(api, namespace, "running").advance_to("Running")
    wait_for("its event", lambda: running.events()["Started"])
    undisturbed = (running.get(), running.uids(), running.events())
    job = submit(api, namespace).advance_to("Starting")
    pair[0].kill()
    before = lease(api)
    job.run_workers()
    wait_for("the hosts, from the other", lambda: job.hosts)
    after = lease(api)
    assert (before["holderIdentity"], after["holderIdentity"]) == ("one", "two")
    assert timestamp(after["acquireTime"]) - timestamp(before["renewTime"]) <= TAKEN_OVER_WITHIN
    job.run()
    job.wait("Running")
    assert (running.get(), running.uids(), running.events()) == undisturbed
    running.end("launcher", 0)
    running.wait("Succeeded")
    wait_for("the last event", lambda: running.events()["Succeeded"])
    assert set(running.events().values()) == {1}


def test_a_paused_leader_writes_nothing_when_it_continues(
    pair: Pair, control_plane: OperatorControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    job = submit(api, namespace).advance_to("Running")
    pair[0].send(signal.SIGSTOP)
    job.end("launcher", 1)
    job.wait("Restarting")  # by the other
    credential = credential_of(tmp_path / "one.yaml")
    before = len(writes(control_plane, credential))
    pair[0].send(signal.SIGCONT)
    assert pair[0].wait_for_exit()[0].startswith("ERROR: lease: lost")
    assert set(writes(control_plane, credential)[before:]) <= {"update leases"}
    assert job.status["restarts"] == 1


def credential_of(kubeconfig: Path) -> str:
    """Identifier of the token in a kubeconfig, as the audit log names it."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"].split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(token + '=='))['jti']}"


def writes(control_plane: OperatorControlPlane, credential: str) -> list[str]:
    """What the holder of this token has written, or tried to, as `verb resource`."""
    lines = control_plane.audit_log.read_text().splitlines(keepends=True)
    entries = [json.loads(line) for line in lines if credential in line and line.endswith("\n")]
    return [f"{e['verb']} {e['objectRef']['resource']}" for e in entries if e["verb"] not in ("get", "list", "watch")]


def test_the_standby_takes_over_at_once_when_the_leader_shuts_down(pair: Pair, api: Api, namespace: str) -> None:
    assert pair[0].stop() == 0
    stopped_at = datetime.now(UTC)
    assert lease(api)["holderIdentity"] in ("", "two")
    wait_for("the other to lead", lambda: pair[1].is_leader)
    assert timestamp(lease(api)["acquireTime"]) - stopped_at < LAPSES_AFTER
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
