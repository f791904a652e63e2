"""Events of a job are best effort: none is posted twice, some may be missing."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from integration.conftest import marker_event
from support.api_client import Api, ApiError, wait_for
from support.job_driver import Job

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


def test_a_job_succeeds_although_no_event_can_be_posted(submit_job: Submit, event_outage: EventOutage) -> None:
    event_outage.start()
    job = submit_job().advance_to("Succeeded")
    wait_for("the clean-up", lambda: set(job.pods()) == {"launcher"})
    assert job.events() == {}


def test_events_are_posted_again_after_an_outage(submit_job: Submit, event_outage: EventOutage) -> None:
    event_outage.start()
    job = submit_job().advance_to("Starting")
    event_outage.end()
    job.advance_to("Succeeded", since="Starting")
    wait_for("the last event", lambda: job.events()["Succeeded"] == 1)
