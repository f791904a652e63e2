"""Jobs with a status of a newer release, after a rollback: this release does not change what it cannot parse."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from integration.conftest import Watches, reset_gaps
from support.api_client import JOBS, Api, ApiError, Object, wait_for
from support.control_plane.operator_control_plane import make_namespace
from support.job_driver import Job, submit
from support.operator_process import Operator

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"
STATUS = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties"
FIELDS = (f"{STATUS}/phase/enum", f"{STATUS}/conditions/items/properties/type/enum")
CONDITION = {"type": "Checkpointed", "status": "True", "reason": "Saved", "message": "", "observedGeneration": 1}


def newer_phase(status: Object) -> Object:
    return {**status, "phase": "Paused"}


def newer_condition(status: Object) -> Object:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**status, "conditions": [*status["conditions"], {**CONDITION, "lastTransitionTime": at}]}


CHANGES: dict[str, Callable[[Object], Object]] = {"phase": newer_phase, "condition": newer_condition}


@pytest.fixture
def newer_crd(api: Api, watch_threads: Watches, check_watches_and_operators: None, namespace: str) -> Iterator[str]:
    """The CRD of a release with more phases and conditions, and a namespace whose statuses may be of that release."""
    schema = api.get(DEFINITION)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    phase, conditions = schema["properties"]["phase"], schema["properties"]["conditions"]
    known = (phase["enum"], conditions["items"]["properties"]["type"]["enum"])
    probe = submit(api, namespace, "probe", runPolicy={"managedBy": "example.com/nobody"})
    api.patch(DEFINITION, [{"op": "remove", "path": path} for path in FIELDS], "json")
    wait_for("the newer CRD", lambda: accepts_newer_phase(probe))
    newer = f"{namespace}-newer"
    make_namespace(api, newer)
    yield newer
    api.delete(JOBS.format(newer))
    wait_for("its jobs to be deleted", lambda: not api.get(JOBS.format(newer))["items"])
    api.delete(f"/api/v1/namespaces/{newer}")
    restored = [{"op": "add", "path": path, "value": value} for path, value in zip(FIELDS, known, strict=True)]
    api.patch(DEFINITION, restored, "json")
    wait_for("the CRD of this release", lambda: not accepts_newer_phase(probe))
    reset_gaps(api, watch_threads, namespace)


def accepts_newer_phase(job: Job) -> bool:
    """Whether the API server accepts the phase: a changed CRD takes effect with a delay."""
    try:
        job.api.patch(f"{job.path}/status?dryRun=All", {"status": newer_phase({})})
    except ApiError as error:
        if error.status not in (422, 429):
            raise
        return False
    return True


def description(job: Job) -> dict[str, Any]:
    """What must not change, in whatever way the operator reports that it cannot parse the status."""
    status = job.status
    conditions = {
        one["type"]: one["status"] for one in status["conditions"] if one["type"] not in ("Stalled", "Reconciling")
    }
    numbers = {key: status.get(key) for key in ("phase", "attempt", "restarts", "completionTime", "startTime")}
    return {"conditions": conditions, **numbers, "pods": job.uids()}


@pytest.fixture
def jobs(newer_crd: str, operator: Operator, api: Api) -> dict[str, Job]:
    """Jobs with a status of the newer release, running and finished ones; the operator is stopped."""
    made = [
        (submit(api, newer_crd, f"{what}-{phase}".lower()).advance_to(phase), change)
        for what, change in CHANGES.items()
        for phase in ("Running", "Succeeded")
    ]
    for job, _ in made:
        if job.phase == "Succeeded":
            wait_for("the clean-up", lambda job=job: set(job.pods()) == {"launcher"})  # type: ignore[misc]
    operator.kill()
    for job, change in made:
        api.patch(f"{job.path}/status", {"status": change(job.status)})
    return {job.name: job for job, _ in made}


def test_a_job_with_a_status_of_a_newer_release_is_stalled_and_not_changed(
    jobs: dict[str, Job], newer_crd: str, operator_process: Operator, api: Api
) -> None:
    before = {name: description(job) for name, job in jobs.items()}
    operator_process.start()
    submit(api, newer_crd, "other").advance_to("Succeeded")
    assert {name: description(job) for name, job in jobs.items()} == before
    for what in CHANGES:
        assert "status" in jobs[f"{what}-running"].wait_for_condition("Stalled")
    assert {name: description(job) for name, job in jobs.items()} == before
