"""The spec of a job is frozen while it runs, can change while it is suspended, and is final when it has ended."""

import copy
import itertools
from typing import Any

import pytest
import yaml

from crd.every_field import WHOLE
from horovodjob.api.frozen_spec import frozen_paths
from support.api_client import FORBIDDEN, INVALID, Api, ApiError, Object, job

REMOVED: Any = object()
Path = tuple[str | int, ...]
CHANGES: tuple[tuple[Path, Any], ...] = (
    (("image",), "trainer:2"),
    (("imagePullPolicy",), "Never"),
    (("imagePullSecrets",), [{"name": "other"}]),
    (("command", 1), "other.py"),
    (("env", 0, "value"), "2"),
    (("env", 1, "valueFrom", "secretKeyRef", "key"), "b"),
    (("envFrom", 0), {"secretRef": {"name": "settings"}}),
    (("worker", "replicas"), 3),
    (("worker", "gpus"), 2),
    (("worker", "slots"), REMOVED),
    (("worker", "resources", "limits"), {"memory": "1"}),
    (("worker", "template", "metadata", "labels"), {"b": "1"}),
    (("worker", "template", "spec", "containers", 0), {"name": "worker", "c": 2}),
    (("worker", "template"), REMOVED),
    (("launcher", "resources", "requests", "cpu"), "2"),
    (("launcher", "template", "spec", "hostNetwork"), False),
    (("pool",), "cpunp"),
    (("nodeSelector",), {"gpu": "ssd"}),
    (("tolerations", 0), {"key": "a", "operator": "Equal"}),
    (("serviceAccountName",), "other"),
    (("podSecurity",), "Restricted"),
    (("volumes", 0), {"name": "data", "emptyDir": {}}),
    (("volumes", 0, "persistentVolumeClaim", "claimName"), "other"),
    (("volumeMounts", 0), {"name": "data", "mountPath": "/data", "newField": True}),
    (("shmSize",), "2Gi"),
    (("mpi", "args"), ["-x", "B"]),
    (("spot",), False),
    (("priorityClassName",), "high"),
    (("azureFiles", 0, "share"), "other"),
    (("preparation", "timeoutSeconds"), 61),
    (("inputs", 0, "path"), "/other"),
    (("outputs", 0, "pathSuffix"), REMOVED),
    (("logs",), REMOVED),
    (("network", "isolate"), False),
    (("scheduling", "avoidFailedNodes"), True),
    (("runPolicy", "cleanPodPolicy"), "All"),
    (("runPolicy", "onWorkerLoss"), "Fail"),
    (("runPolicy", "backoffLimit"), 4),
    (("runPolicy", "activeDeadlineSeconds"), REMOVED),
    (("runPolicy", "progressDeadlineSeconds"), 900),
    (("runPolicy", "failOnExitCodes"), [2]),
)
ENDED = "cannot change, because the job has ended and never runs again: create a job with another name"
NAMES = (f"frozen-{number}" for number in itertools.count())


def with_value(spec: Object, path: Path, value: Any) -> Object:
    """The spec with another value in this place."""
    after = copy.deepcopy(spec)
    place: Any = after
    for step in path[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return after


def with_suspend(suspend: bool) -> Object:
    return with_value(WHOLE, ("runPolicy", "suspend"), suspend)


def ended_job(api: Api, jobs: str, phase: str = "Succeeded", **spec: Any) -> Object:
    """A job that has ended."""
    name = next(NAMES)
    api.create(jobs, job(name, **spec))
    return end(api, f"{jobs}/{name}", phase)


def end(api: Api, path: str, phase: str = "Succeeded") -> Object:
    """Ends a job as the operator does, by a write of its status."""
    return api.patch(f"{path}/status", {"status": {"phase": phase, "completionTime": "2026-11-22T12:00:00Z"}})


def path_of(jobs: str, body: Object) -> str:
    return f"{jobs}/{body['metadata']['name']}"


def field_name(path: Path) -> str:
    """The name of the field in the message: its first step, and for worker and runPolicy also the second."""
    return f"{path[0]}.{path[1]}" if path[0] in ("worker", "runPolicy") else str(path[0])


def value_at(spec: Object, path: Path) -> Any:
    place: Any = spec
    for step in path[:-1]:
        place = place[step]
    return place.get(path[-1], REMOVED) if isinstance(place, dict) else place[path[-1]]


@pytest.fixture(scope="module")
def running_job(api: Api, jobs: str) -> Object:
    made: Object = api.create(jobs, {**job("running"), "spec": WHOLE})
    return made


@pytest.fixture(scope="module")
def suspended_job(api: Api, jobs: str) -> Object:
    made: Object = api.create(jobs, {**job("waiting"), "spec": with_suspend(True)})
    return made


@pytest.fixture(scope="module")
def ended_suspended_job(api: Api, jobs: str) -> Object:
    """The jobs of earlier releases can be so: they could be suspended after their end."""
    return ended_job(api, jobs, **with_suspend(True))


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=lambda each: "removed" if each is REMOVED else str(each))
def test_a_field_can_change_only_while_the_job_is_suspended_and_not_after_its_end(
    api: Api, jobs: str, running_job: Object, suspended_job: Object, ended_suspended_job: Object, path: Path, value: Any
) -> None:
    def change(body: Object) -> Object:
        after = {**body, "spec": with_value(body["spec"], path, value)}
        stored: Object = api.replace(f"{path_of(jobs, body)}?dryRun=All", after)
        return stored

    assert value_at(change(suspended_job)["spec"], path) == value
    field = field_name(path)
    with pytest.raises(ApiError) as refused:
        change(running_job)
    assert f": {field} can change only while the job is suspended: set runPolicy.suspend to true" in str(refused.value)
    with pytest.raises(ApiError) as refused:
        change(ended_suspended_job)
    assert refused.value.status == (INVALID if path == ("worker", "replicas") else FORBIDDEN)
    assert f": {field} {ENDED}" in refused.value.message
    assert "suspended" not in refused.value.message


@pytest.mark.parametrize("suspend", [True, False])
def test_suspension_and_a_change_can_come_in_one_update(api: Api, jobs: str, suspend: bool) -> None:
    name = next(NAMES)
    made = api.create(jobs, {**job(name), "spec": with_suspend(not suspend)})
    wanted = with_value(with_value(made["spec"], ("image",), "trainer:2"), ("runPolicy", "suspend"), suspend)
    stored = api.replace(f"{jobs}/{name}", {**made, "spec": wanted})["spec"]
    assert (stored["image"], stored["runPolicy"]["suspend"]) == ("trainer:2", suspend)


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        ({}, {"pool": "gpunp"}),
        ({"command": None, "launcherCommand": ["a"]}, {"launcherCommand": ["b"]}),
        ({"command": None, "script": {"path": "/a.py"}}, {"script": {"args": ["x"]}}),
    ],
)
def test_a_field_that_was_absent_and_those_beside_command_are_frozen(
    api: Api, jobs: str, spec: Object, change: Object
) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, **spec))
    with pytest.raises(ApiError, match=f"{next(iter(change))} can change only while the job is suspended"):
        api.patch(f"{jobs}/{name}", {"spec": change})


@pytest.mark.parametrize("has_ended", [False, True])
def test_omitting_a_default_value_is_no_change(api: Api, jobs: str, has_ended: bool) -> None:
    made = ended_job(api, jobs) if has_ended else api.create(jobs, job(next(NAMES)))
    for optional in ("launcher", "podSecurity", "runPolicy"):
        del made["spec"][optional]
    assert api.replace(path_of(jobs, made), made)["metadata"]["generation"] == 1


def test_labels_time_to_live_and_termination_of_a_running_job_can_change(
    api: Api, jobs: str, running_job: Object
) -> None:
    for change in ({"ttlSecondsAfterFinished": 60}, {"terminate": True}):
        stored = api.patch(f"{jobs}/running?dryRun=All", {"spec": {"runPolicy": change}})
        assert stored["spec"]["runPolicy"].items() >= change.items()
    stored = api.patch(f"{jobs}/running?dryRun=All", {"metadata": {"labels": {"team": "vision"}}})
    assert stored["metadata"]["labels"] == {"team": "vision"}


@pytest.mark.parametrize("suspend", [True, False])
def test_termination_cannot_be_reverted(api: Api, jobs: str, suspend: bool) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, runPolicy={"suspend": suspend, "terminate": True}))
    with pytest.raises(ApiError, match="terminate cannot be reset to false"):
        api.patch(f"{jobs}/{name}", {"spec": {"runPolicy": {"terminate": False}}})


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("before", [None, "example.org/queue"])
@pytest.mark.parametrize("place", ["managedBy", "runPolicy.managedBy"])
def test_managed_by_is_immutable(api: Api, jobs: str, before: str | None, suspend: bool, place: str) -> None:
    def spec(manager: str | None) -> Object:
        return {"managedBy": manager} if place == "managedBy" else {"runPolicy": {"managedBy": manager}}

    name = next(NAMES)
    api.create(jobs, job(name, **({} if before is None else spec(before))))
    api.patch(f"{jobs}/{name}", {"spec": {"runPolicy": {"suspend": suspend}}})
    for after in {"example.org/other", None} - {before}:
        with pytest.raises(ApiError, match="managedBy cannot change"):
            api.patch(f"{jobs}/{name}", {"spec": spec(after)})


def test_managed_by_can_move_from_the_run_policy_to_the_top_of_the_spec(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, runPolicy={"managedBy": "example.org/queue"}))
    moved = {"managedBy": "example.org/queue", "runPolicy": {"managedBy": None}}
    assert api.patch(f"{jobs}/{name}", {"spec": moved})["spec"]["managedBy"] == "example.org/queue"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_can_be_neither_suspended_nor_terminated(api: Api, jobs: str, phase: str) -> None:
    ended = ended_job(api, jobs, phase)
    for field in ("suspend", "terminate"):
        with pytest.raises(ApiError, match=f"runPolicy.{field} {ENDED}"):
            api.patch(path_of(jobs, ended), {"spec": {"runPolicy": {field: True}}})


def test_a_suspended_job_that_has_ended_cannot_be_resumed_and_all_changed_fields_are_named(
    api: Api, jobs: str, ended_suspended_job: Object
) -> None:
    wanted = {"image": "trainer:2", "pool": None, "runPolicy": {"backoffLimit": 9, "suspend": False}}
    with pytest.raises(ApiError, match=f": image, pool, runPolicy.backoffLimit, runPolicy.suspend {ENDED}"):
        api.patch(path_of(jobs, ended_suspended_job), {"spec": wanted})


@pytest.mark.parametrize(
    "spec",
    [{}, {"runPolicy": {"suspend": True}}, {"elastic": {"minReplicas": 1, "maxReplicas": 4}}],
    ids=["plain", "suspended", "elastic"],
)
def test_a_job_that_has_ended_cannot_be_scaled(api: Api, jobs: str, spec: Object) -> None:
    path = path_of(jobs, ended_job(api, jobs, **spec))
    for target, body in ((f"{path}/scale", {"replicas": 3}), (path, {"worker": {"replicas": 3}})):
        with pytest.raises(ApiError) as refused:
            api.patch(target, {"spec": body})
        assert refused.value.status == INVALID
        assert f"worker.replicas {ENDED}" in refused.value.message
        assert "suspended" not in refused.value.message
    assert api.patch(f"{path}/scale", {"spec": {"replicas": 2}})["spec"]["replicas"] == 2


@pytest.mark.parametrize("suspend", [True, False])
def test_time_to_live_metadata_and_status_of_a_job_that_has_ended_can_change(
    api: Api, jobs: str, suspend: bool
) -> None:
    ended = ended_job(api, jobs, runPolicy={"suspend": suspend})
    path = path_of(jobs, ended)
    assert api.patch(f"{path}/status", {"status": {"observedGeneration": 1}})["status"]["observedGeneration"] == 1
    after = {**api.get(path), "spec": {**ended["spec"], "image": "ignored"}}
    assert api.replace(f"{path}/status", after)["spec"] == ended["spec"]
    for seconds in (60, 0, None):
        stored = api.patch(path, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": seconds}}})
        assert stored["spec"]["runPolicy"].get("ttlSecondsAfterFinished") == seconds
    added = {"labels": {"team": "vision"}, "annotations": {"note": "best"}, "finalizers": ["example.org/archive"]}
    stored = api.patch(path, {"metadata": added})
    assert added.items() <= stored["metadata"].items()
    assert "finalizers" not in api.patch(path, {"metadata": {"finalizers": None}})["metadata"]


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_the_manifest_of_a_job_that_has_ended_can_be_applied_again(
    api: Api, jobs: str, options: tuple[str, ...]
) -> None:
    shares = [{"name": "data", "account": "mystorageaccount", "share": "data"}]  # its items have defaults
    manifest = yaml.safe_dump(job(next(NAMES), azureFiles=shares))
    path = path_of(jobs, yaml.safe_load(manifest))
    assert api.kubectl("apply", *options, "-f", "-", stdin=manifest).returncode == 0
    before = end(api, path)
    done = api.kubectl("apply", *options, "-f", "-", stdin=manifest)
    assert done.returncode == 0, done.stderr
    assert api.get(path)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_every_field_of_the_spec_is_in_the_table() -> None:
    assert set(frozen_paths()) - {field_name(path) for path, _ in CHANGES} == {"script", "launcherCommand", "elastic"}


def test_an_elastic_job_can_be_scaled_within_its_limits_and_the_limits_are_frozen(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, worker={"replicas": 2}, elastic={"minReplicas": 2, "maxReplicas": 3}))
    scale = f"{jobs}/{name}/scale"
    assert api.patch(scale, {"spec": {"replicas": 3}})["spec"]["replicas"] == 3
    for replicas in (1, 4):
        with pytest.raises(ApiError, match="must be from elastic"):
            api.patch(scale, {"spec": {"replicas": replicas}})
    for change in ({"elastic": {"maxReplicas": 4}}, {"elastic": None}, {"worker": {"slots": 3}}):
        with pytest.raises(ApiError, match="can change only while the job is suspended"):
            api.patch(f"{jobs}/{name}", {"spec": change})
