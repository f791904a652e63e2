"""Events of a job if the operator is killed, or cannot post them, after it wrote the status."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from aiohttp import ClientConnectionResetError, ClientHandlerType, ClientRequest, ClientResponse

from api.client import Api, ApiError, wait_for
from horovodjob_operator.controller.clock import now
from horovodjob_operator.controller.job_store import JobStore
from horovodjob_operator.errors import Unavailable
from horovodjob_operator.kube.api_client import ApiClient
from integration.conftest import marker_event
from integration.in_process_operator import cached_state, one_hour_later, reconciler_of
from integration.job_driver import Job, submit
from integration.operator_process import Operator

Submit = Callable[..., Job]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"


class EventOutage:
    """A webhook that does not respond: while it is registered, no event can be created in the namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace, self._name = api, namespace, f"no-events-in-{namespace}"

    def start(self) -> None:
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
        wait_for("events to be rejected", lambda: not self._accepts())

    def end(self) -> None:
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
def event_outage(api: Api, namespace: str) -> Iterator[EventOutage]:
    made = EventOutage(api, namespace)
    yield made
    made.end()


def test_an_event_is_posted_when_the_api_server_accepts_it_again(submit_job: Submit, event_outage: EventOutage) -> None:
    event_outage.start()
    job = submit_job()
    job.wait("Queued")
    job.wait_for_pods()
    assert job.events() == {}
    event_outage.end()
    wait_for("the event", lambda: job.events() == {"Created": 1})


def test_events_that_a_killed_operator_did_not_post_are_posted_once_after_the_restart(
    submit_job: Submit, operator: Operator, event_outage: EventOutage
) -> None:
    job, posted = submit_job("waits", runPolicy={"suspend": True}), Counter({"Suspended": 1})
    job.wait("Suspended")
    wait_for("the first event", lambda: job.events() == posted)
    since = datetime.fromisoformat(job.condition("Suspended")["lastTransitionTime"]).timestamp()
    wait_for("the next second, which is another one to the status", lambda: time.time() > since + 1)
    for phase, step, missing in (
        ("Queued", lambda: job.suspend(False), ["Resumed"]),
        ("Running", lambda: job.advance_to("Running", since="Queued"), ["Admitted", "WorkersReady", "Started"]),
        ("Restarting", lambda: job.end("launcher", 1), ["Restarting"]),
        ("Suspended", job.suspend, ["Suspended"]),
        ("Failed", lambda: job.edit_policy(terminate=True), ["Failed"]),
    ):
        event_outage.start()
        step()
        job.wait(phase)
        operator.kill()
        assert job.events() == posted
        event_outage.end()
        operator.start()
        posted.update(missing)
        wait_for(f"the events of {phase}", lambda: job.events() == posted)
    operator.kill()
    operator.start()
    other = submit_job("other")
    wait_for("its event", lambda: other.events() == {"Created": 1})
    assert job.events() == posted


async def test_a_job_that_finished_long_ago_has_no_events_posted_again(
    submit_job: Submit, operator_process: Operator, connection: ApiClient, api: Api, namespace: str
) -> None:
    job = submit_job().advance_to("Succeeded")
    wait_for("the last event", lambda: job.events()["Succeeded"])
    operator_process.kill()
    for event in api.get(EVENTS.format(namespace))["items"]:
        api.delete(f"{EVENTS.format(namespace)}/{event['metadata']['name']}")
    for clock, posted in ((one_hour_later, {}), (now, {"Succeeded": 1})):
        await reconciler_of(connection, clock).reconcile(cached_state(job, JobStore()))
        assert job.events() == posted


@pytest.mark.parametrize("is_watch_first", [False, True], ids=["before-the-watch", "after-the-watch"])
async def test_events_are_posted_although_the_answer_to_the_write_of_the_status_was_lost(
    operator_process: Operator, connection: ApiClient, api: Api, namespace: str, is_watch_first: bool
) -> None:
    async def without_answer(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        response = await handler(request)
        if request.method == "PATCH":
            response.close()
            if is_watch_first:
                cached_state(job, store)
            raise ClientConnectionResetError("reset by the test")
        return response

    operator_process.kill()
    job, store = submit(api, namespace), JobStore()
    reconciler = reconciler_of(connection, now)
    state = cached_state(job, store)
    intact, connection.session = connection.session, connection.new_session(without_answer)
    with pytest.raises(Unavailable):
        await reconciler.reconcile(state)
    await connection.session.close()
    connection.session = intact
    assert (job.phase, job.events()) == ("Queued", {})
    for _ in range(2):
        cached_state(job, store)
        await reconciler.reconcile(state)
    assert job.events() == {"Created": 1}
