"""Two operators: one leads, the other stands by and takes over."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from api.client import Api, wait_for
from handling.plane import OPERATOR_NAMESPACE
from handling.player import submit
from handling.process import Operator
from handling.reporter import post, token_of
from horovodjob_operator.cluster.lease import RENEW_DEADLINE_SECONDS

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/horovodjob-operator"
Pair = tuple[Operator, Operator]
# What docs/operations.md promises of a crash.
TAKEN_OVER_WITHIN = timedelta(seconds=15)
# A Lease that was not released lapses no sooner than this after its holder has stopped.
LAPSES_AFTER = timedelta(seconds=RENEW_DEADLINE_SECONDS)


@pytest.fixture
def pair(process: Operator, operator_access: Path, api: Api) -> Iterator[Pair]:
    """A leader and one that stands by."""
    process.kill()
    if api.find(LEASE):
        api.delete(LEASE)
    settings = {"lease_namespace": OPERATOR_NAMESPACE}
    one, two = (Operator(operator_access, operator_access.with_name(n), identity=n, **settings) for n in ("one", "two"))
    one.start()
    wait_for("a leader", lambda: leads(one))
    two.start()
    yield one, two
    for each in (one, two):
        each.kill()


def leads(operator: Operator) -> bool:
    return operator.metrics()["horovodjob_operator_leader"] == 1


def wrote(operator: Operator) -> bool:
    return any(call.split()[0] in ("create", "patch") and "leases" not in call for call in operator.requests())


def lease(api: Api) -> dict[str, str]:
    """The spec of the Lease: who holds it, since when, and when it was renewed last."""
    spec: dict[str, str] = api.get(LEASE)["spec"]
    return spec


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_of_two_operators_one_acts(pair: Pair, api: Api, namespace: str) -> None:
    submit(api, namespace).bring_to("Succeeded")
    assert (leads(pair[0]), leads(pair[1])) == (True, False)
    assert (wrote(pair[0]), wrote(pair[1])) == (True, False)
    assert pair[1].answer("/readyz")[0] == 200


def test_the_other_takes_over_when_the_leader_is_killed(pair: Pair, api: Api, namespace: str) -> None:
    job = submit(api, namespace).bring_to("Starting")
    pair[0].kill()
    before = lease(api)
    job.run_workers()
    wait_for("the hosts, from the other", lambda: job.hosts)
    after = lease(api)
    assert (before["holderIdentity"], after["holderIdentity"]) == ("one", "two")
    assert moment(after["acquireTime"]) - moment(before["renewTime"]) <= TAKEN_OVER_WITHIN
    job.run()
    job.wait("Running")


def test_the_other_takes_over_at_once_when_the_leader_stops(pair: Pair, api: Api, namespace: str) -> None:
    assert pair[0].stop() == 0
    stopped_at = datetime.now(UTC)
    assert lease(api)["holderIdentity"] in ("", "two")
    wait_for("the other to lead", lambda: leads(pair[1]))
    assert moment(lease(api)["acquireTime"]) - stopped_at < LAPSES_AFTER
    submit(api, namespace).bring_to("Running")


def test_a_standby_leaves_reports_to_the_leader(pair: Pair, api: Api, namespace: str) -> None:
    job = submit(api, namespace).bring_to("Running")
    token = token_of(job)
    assert (post(pair[1], token), post(pair[0], token)) == (503, 204)
    assert pair[1].reports() == {"not_leader": 1}
