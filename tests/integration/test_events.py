"""Events of a job when the operator is killed, or cannot post them, after it has written the status."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from aiohttp import ClientConnectionResetError, ClientHandlerType, ClientRequest, ClientResponse

from api.client import Api, ApiError, wait_for
from horovodjob_operator.cluster.caches import Caches
from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.cluster.objects import Objects
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.reconciler import Reconciler
from horovodjob_operator.errors import Unavailable
from integration.conftest import marker_event
from integration.in_process_operator import in_an_hour, take_in
from integration.job_driver import Job, submit
from integration.operator_process import Operator

Submit = Callable[..., Job]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"


class Obstacle:
    """A webhook that does not answer: while it is there, no event can be created in the namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace, self._name = api, namespace, f"no-events-in-{namespace}"

    def put_up(self) -> None:
        rule = {
            "apiGroups": ["events.k8s.io"],
            "apiVersions": ["v1"],
            "resources": ["events"],
            "operations": ["CREATE"],
        }
        webhook = {
            "name": "events.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        self._api.create(WEBHOOKS, {**kind, "metadata": {"name": self._name}, "webhooks": [webhook]})
        wait_for("events to be refused", lambda: not self._accepts())

    def remove(self) -> None:
        with contextlib.suppress(ApiError):
            self._api.delete(f"{WEBHOOKS}/{self._name}")
        wait_for("events to be accepted", self._accepts)

    def _accepts(self) -> bool:
        try:
            self._api.create(f"{EVENTS.format(self._namespace)}?dryRun=All", marker_event(self._namespace))
        except ApiError as error:
            if error.status != 500:
                raise
            return False
        return True


@pytest.fixture
def obstacle(api: Api, namespace: str) -> Iterator[Obstacle]:
    made = Obstacle(api, namespace)
    yield made
    made.remove()


def test_an_event_is_posted_when_the_api_server_accepts_it_again(submitted: Submit, obstacle: Obstacle) -> None:
    obstacle.put_up()
    job = submitted()
    job.wait("Queued")
    job.wait_for_pods()
    assert job.events() == {}
    obstacle.remove()
    wait_for("the event", lambda: job.events() == {"Created": 1})


def test_events_that_a_killed_operator_did_not_post_are_posted_once_after_the_restart(
    submitted: Submit, operator: Operator, obstacle: Obstacle
) -> None:
    job, posted = submitted("waits", runPolicy={"suspend": True}), Counter({"Suspended": 1})
    job.wait("Suspended")
    wait_for("the first event", lambda: job.events() == posted)
    since = datetime.fromisoformat(job.condition("Suspended")["lastTransitionTime"]).timestamp()
    wait_for("the next second, which is another one to the status", lambda: time.time() > since + 1)
    for phase, step, missing in (
        ("Queued", lambda: job.suspend(False), ["Resumed"]),
        ("Running", lambda: job.bring_to("Running", since="Queued"), ["Admitted", "WorkersReady", "Started"]),
        ("Restarting", lambda: job.end("launcher", 1), ["Restarting"]),
        ("Suspended", job.suspend, ["Suspended"]),
        ("Failed", lambda: job.edit_policy(terminate=True), ["Failed"]),
    ):
        obstacle.put_up()
        step()
        job.wait(phase)
        operator.kill()
        assert job.events() == posted
        obstacle.remove()
        operator.start()
        posted.update(missing)
        wait_for(f"the events of {phase}", lambda: job.events() == posted)
    operator.kill()
    operator.start()
    other = submitted("other")
    wait_for("its event", lambda: other.events() == {"Created": 1})
    assert job.events() == posted


async def test_events_of_a_job_that_finished_long_ago_are_not_posted_again(
    submitted: Submit, process: Operator, connection: Connection, api: Api, namespace: str
) -> None:
    job = submitted().bring_to("Succeeded")
    wait_for("the last event", lambda: job.events()["Succeeded"])
    process.kill()
    for event in api.get(EVENTS.format(namespace))["items"]:
        api.delete(f"{EVENTS.format(namespace)}/{event['metadata']['name']}")
    for clock, posted in ((in_an_hour, {}), (now, {"Succeeded": 1})):
        caches = Caches()
        reconciler = Reconciler(caches, Objects(connection, "test"), clock, "")
        await reconciler.reconcile(take_in(job, caches))
        assert job.events() == posted


async def test_events_are_posted_if_the_response_to_the_status_write_is_lost(
    process: Operator, connection: Connection, api: Api, namespace: str
) -> None:
    async def without_answer(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        response = await handler(request)
        if request.method == "PATCH":
            response.close()
            raise ClientConnectionResetError("reset by the test")
        return response

    process.kill()
    job, caches = submit(api, namespace), Caches()
    reconciler = Reconciler(caches, Objects(connection, "test"), now, "")
    record = take_in(job, caches)
    intact, connection.session = connection.session, connection.new_session(without_answer)
    with pytest.raises(Unavailable):
        await reconciler.reconcile(record)
    await connection.session.close()
    connection.session = intact
    assert (job.phase, job.events()) == ("Queued", {})
    for _ in range(2):
        take_in(job, caches)
        await reconciler.reconcile(record)
    assert job.events() == {"Created": 1}
