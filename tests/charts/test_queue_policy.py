"""The policy that demands a queue of each job in the namespaces that an administrator selects."""

from collections.abc import Callable, Iterator

import pytest

from support.api_client import BASE, JOBS, Api, ApiError, Object, job, wait_for

POLICY = BASE.parent / "components" / "queue-policy" / "policy.yaml"
DRY_RUN = "?dryRun=All"
QUEUE = "kueue.x-k8s.io/queue-name"
NAMESPACE = "queue-required"
TRAIN = f"{JOBS.format(NAMESPACE)}/train"
NO_LABEL = {"metadata": {"labels": {QUEUE: None}}}
NEEDS = "needs the label kueue.x-k8s.io/queue-name, with the name of a LocalQueue"
STAYS = "it stays until the HorovodJob has ended"


def named(name: str, queue: str | None, **spec: object) -> Object:
    made = job(name, command=["true"], **spec)
    made["metadata"]["labels"] = {} if queue is None else {QUEUE: queue}
    return made


def error_of(request: Callable[..., object], *arguments: object) -> str:
    """The error of a request; empty if there is none."""
    try:
        request(*arguments)
    except ApiError as error:
        return error.message
    return ""


def created(api: Api, body: Object, query: str = "") -> str:
    return error_of(api.create, f"{JOBS.format(NAMESPACE)}{query}", body)


def changed(api: Api, patch: Object, name: str = "train") -> str:
    return error_of(api.patch, f"{JOBS.format(NAMESPACE)}/{name}", patch)


@pytest.fixture(scope="module", autouse=True)
def selected_namespace(api: Api) -> Iterator[None]:
    """A namespace with a job from before the policy."""
    labels = {"horovodjob.dev/queue-required": "true"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    api.create("/api/v1/namespaces", body)
    # Other tests of this API server apply the component, too.
    assert api.kubectl("delete", "--ignore-not-found", "-f", str(POLICY)).returncode == 0
    wait_for("no policy", lambda: not created(api, named("probe", None), DRY_RUN))
    assert created(api, named("old", None, runPolicy={"suspend": True})) == ""
    assert api.kubectl("apply", "-f", str(POLICY)).returncode == 0
    wait_for("the policy", lambda: NEEDS in created(api, named("probe", None), DRY_RUN))
    yield
    assert api.kubectl("delete", "-f", str(POLICY)).returncode == 0
    assert api.kubectl("delete", "namespace", NAMESPACE, "--wait=false").returncode == 0


@pytest.fixture
def train(api: Api) -> Iterator[Object]:
    """A job with a queue."""
    assert created(api, named("train", "gpus")) == ""
    yield api.get(TRAIN)
    api.delete(TRAIN)


@pytest.mark.parametrize("queue", [None, ""])
def test_a_job_without_a_queue_is_refused_in_the_selected_namespace_only(api: Api, queue: str | None) -> None:
    assert NEEDS in created(api, named("no", queue))
    ended = {"status": {"phase": "Failed", "completionTime": "2026-01-01T00:00:00Z"}}
    assert NEEDS in created(api, named("no", queue) | ended)
    api.create(f"{JOBS.format('default')}{DRY_RUN}", named("free", queue))


@pytest.mark.usefixtures("train")
def test_a_job_keeps_its_queue_or_gets_another_one_until_it_has_ended(api: Api) -> None:
    assert STAYS in changed(api, NO_LABEL)
    assert STAYS in changed(api, {"metadata": {"labels": {QUEUE: ""}}})
    assert changed(api, {"metadata": {"labels": {QUEUE: "other"}}}) == ""
    removal = [{"op": "remove", "path": "/metadata/labels"}]
    assert STAYS in error_of(api.patch, TRAIN, removal, "json")
    present = api.get(TRAIN)
    version = {"name": "train", "resourceVersion": present["metadata"]["resourceVersion"]}
    assert STAYS in error_of(api.replace, TRAIN, present | {"metadata": version})
    # A write of the status changes no labels, whoever may do it.
    api.patch(f"{TRAIN}/status", NO_LABEL)
    assert api.get(TRAIN)["metadata"]["labels"] == {QUEUE: "other"}
    assert changed(api, {"spec": {"runPolicy": {"suspend": True}}}) == ""
    api.patch(f"{TRAIN}/status", {"status": {"phase": "Failed", "completionTime": "2026-01-01T00:00:00Z"}})
    assert changed(api, NO_LABEL) == ""


def test_a_job_from_before_the_policy_may_end_but_not_start_again(api: Api) -> None:
    assert changed(api, {"metadata": {"labels": {"team": "a"}}}, "old") == ""
    assert NEEDS in changed(api, {"spec": {"runPolicy": {"suspend": False}}}, "old")
    both = {"metadata": {"labels": {QUEUE: "gpus"}}, "spec": {"runPolicy": {"suspend": False}}}
    assert changed(api, both, "old") == ""
