"""Events of a job are best effort: none is posted twice, some may be missing."""

from collections.abc import Callable

from integration.conftest import marker_event
from support.api_client import Api, wait_for
from support.job_driver import Job
from support.webhook import fails, is_refused, webhook


def test_a_job_runs_although_no_event_can_be_posted_and_posts_them_again_afterwards(
    submit_job: Callable[..., Job], api: Api, namespace: str
) -> None:
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    with webhook(api, namespace, fails, resource="events.k8s.io/v1 events"):
        wait_for("events to be refused", lambda: is_refused(api, events, marker_event(namespace)))
        silent = submit_job("silent").advance_to("Succeeded")
        job = submit_job().advance_to("Starting")
        assert silent.events() == {}
    wait_for("events to be accepted", lambda: not is_refused(api, events, marker_event(namespace)))
    job.advance_to("Succeeded", since="Starting")
    wait_for("the last event", lambda: job.events()["Succeeded"] == 1)
