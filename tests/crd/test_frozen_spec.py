"""The spec of a job is frozen while it runs, can change while it is suspended, and is final when it has ended."""

import copy
import itertools
from typing import Any

import pytest
import yaml

from horovodjob.api.frozen_spec import frozen_paths
from support.api_client import FORBIDDEN, INVALID, Api, ApiError, Object, job

BEFORE: Object = {
    "image": "trainer:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "command": ["python3", "train.py"],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "worker": {
        "replicas": 2,
        "gpus": 0,
        "slots": 2,
        "resources": {"limits": {"cpu": "1"}},
        "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"a": 1, "containers": [{"name": "worker", "b": 2}]}},
    },
    "launcher": {"resources": {"requests": {"cpu": "1"}}, "template": {"spec": {"hostNetwork": True}}},
    "pool": "gpunp",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "sku", "operator": "Equal", "value": "gpu"}],
    "serviceAccountName": "trainer",
    "podSecurity": "Restricted",
    "azureFiles": [{"name": "myshare", "account": "mystorageaccount", "share": "myshare"}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "tmp", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
    "shmSize": "1Gi",
    "mpi": {"args": ["-x", "A"]},
    "spot": True,
    "priorityClassName": "low",
    "preparation": {"command": "true", "timeoutSeconds": 60},
    "inputs": [{"id": "A", "path": "/data"}],
    "outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": "a"}],
    "logs": {"pathPrefix": "/data/logs"},
    "network": {"service": True},
    "scheduling": {"timeoutSeconds": 60},
    "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 3, "activeDeadlineSeconds": 3600},
}
REMOVED: Any = object()
Path = tuple[str | int, ...]
CHANGES: tuple[tuple[Path, Any], ...] = (
    (("image",), "trainer:2"),
    (("imagePullPolicy",), "Never"),
    (("imagePullPolicy",), REMOVED),
    (("imagePullSecrets",), [{"name": "other"}]),
    (("command", 1), "other.py"),
    (("env", 0, "value"), "2"),
    (("env", 0, "name"), "C"),
    (("env", 1, "valueFrom"), {"configMapKeyRef": {"name": "s", "key": "a"}}),
    (("env", 1, "valueFrom", "secretKeyRef", "key"), "b"),
    (("env", 1, "valueFrom", "secretKeyRef"), {"name": "s", "other": "a"}),
    (("envFrom", 0), {"secretRef": {"name": "settings"}}),
    (("envFrom", 0, "configMapRef"), {"other": "settings"}),
    (("worker", "replicas"), 3),
    (("worker", "gpus"), 1),
    (("worker", "slots"), 1),
    (("worker", "slots"), REMOVED),
    (("worker", "resources", "limits"), {"memory": "1"}),
    (("worker", "resources"), {"requests": {"cpu": "1"}}),
    (("worker", "template", "metadata", "labels"), {"b": "1"}),
    (("worker", "template", "metadata"), {"annotations": {"a": "1"}}),
    (("worker", "template"), {"metadata": {"labels": {"a": "1"}}, "other": {}}),
    (("worker", "template", "spec"), {"b": 1, "containers": [{"name": "worker", "b": 2}]}),
    (("worker", "template", "spec", "containers", 0), {"name": "worker", "c": 2}),
    (("worker", "template", "spec", "containers"), []),
    (("worker", "template"), REMOVED),
    (("launcher", "resources", "requests", "cpu"), "2"),
    (("launcher", "asWorker"), True),
    (("launcher", "template"), {"metadata": {}}),
    (("launcher", "template", "spec"), {"hostPID": True}),
    (("launcher", "template", "spec", "hostNetwork"), False),
    (("pool",), "cpunp"),
    (("nodeSelector",), {"gpu": "ssd"}),
    (("tolerations", 0), {"key": "sku", "operator": "Equal", "effect": "gpu"[:0]}),
    (("tolerations",), REMOVED),
    (("serviceAccountName",), "other"),
    (("podSecurity",), "Baseline"),
    (("volumes", 0), {"name": "data", "emptyDir": {}}),
    (("volumes", 0), {"name": "data", "hostPath": {"path": "/"}}),
    (("volumes", 0, "persistentVolumeClaim"), {"other": "data"}),
    (("volumes", 0, "persistentVolumeClaim", "claimName"), "other"),
    (("volumes", 1, "emptyDir"), {"medium": "Memory"}),
    (("volumes", 1), {"name": "tmp", "newSource": {}}),
    (("volumeMounts", 0, "mountPath"), "/other"),
    (("volumeMounts", 0), {"name": "data", "mountPath": "/data", "subPath": "a"}),
    (("volumeMounts", 0), {"name": "data", "mountPath": "/data", "newField": True}),
    (("shmSize",), "2Gi"),
    (("mpi", "args"), ["-x", "B"]),
    (("mpi", "implementation"), "MPICH"),
    (("spot",), False),
    (("priorityClassName",), "high"),
    (("azureFiles", 0, "share"), "other"),
    (("azureFiles", 0, "readOnly"), True),
    (("azureFiles",), REMOVED),
    (("preparation", "command"), "false"),
    (("preparation", "timeoutSeconds"), 61),
    (("preparation",), REMOVED),
    (("inputs", 0, "path"), "/other"),
    (("outputs", 0, "pathPrefix"), "/other"),
    (("outputs", 0, "pathSuffix"), REMOVED),
    (("logs", "pathPrefix"), "/data/other"),
    (("logs",), REMOVED),
    (("network", "service"), False),
    (("network", "isolate"), False),
    (("scheduling", "timeoutSeconds"), 61),
    (("scheduling", "gang"), "Native"),
    (("scheduling", "avoidFailedNodes"), False),
    (("runPolicy", "cleanPodPolicy"), "All"),
    (("runPolicy", "onWorkerLoss"), "Fail"),
    (("runPolicy", "backoffLimit"), 4),
    (("runPolicy", "activeDeadlineSeconds"), 7200),
    (("runPolicy", "activeDeadlineSeconds"), REMOVED),
    (("runPolicy", "progressDeadlineSeconds"), 1800),
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


def with_suspend(spec: Object, suspend: bool) -> Object:
    return with_value(spec, ("runPolicy", "suspend"), suspend)


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


def change_id(change: tuple[Path, Any]) -> str:
    path, value = change
    return ".".join(map(str, path)) + (" removed" if value is REMOVED else f"={value}")


@pytest.fixture(scope="module")
def running_job(api: Api, jobs: str) -> Object:
    made: Object = api.create(jobs, {**job("running"), "spec": BEFORE})
    return made


@pytest.fixture(scope="module")
def suspended_job(api: Api, jobs: str) -> Object:
    made: Object = api.create(jobs, {**job("waiting"), "spec": with_suspend(BEFORE, True)})
    return made


@pytest.mark.parametrize("change", CHANGES, ids=change_id)
def test_a_change_of_a_running_job_is_rejected_with_the_name_of_the_field(
    api: Api, jobs: str, running_job: Object, change: tuple[Path, Any]
) -> None:
    after = {**running_job, "spec": with_value(running_job["spec"], *change)}
    with pytest.raises(ApiError) as refused:
        api.replace(f"{jobs}/running?dryRun=All", after)
    field = field_name(change[0])
    assert f": {field} can change only while the job is suspended: set runPolicy.suspend to true" in str(refused.value)


@pytest.mark.parametrize("change", CHANGES, ids=change_id)
def test_a_change_of_a_suspended_job_is_accepted(
    api: Api, jobs: str, suspended_job: Object, change: tuple[Path, Any]
) -> None:
    spec = with_value(suspended_job["spec"], *change)
    stored = api.replace(f"{jobs}/waiting?dryRun=All", {**suspended_job, "spec": spec})
    place: Any = stored["spec"]
    for step in change[0][:-1]:
        place = place[step]
    assert (place.get(change[0][-1], REMOVED) if isinstance(place, dict) else place[change[0][-1]]) == change[1]


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)], ids=["resume", "suspend"])
def test_suspension_and_a_change_can_come_in_one_update(api: Api, jobs: str, before: bool, after: bool) -> None:
    name = next(NAMES)
    made = api.create(jobs, {**job(name), "spec": with_suspend(BEFORE, before)})
    wanted = with_suspend(with_value(made["spec"], ("image",), "trainer:2"), after)
    stored = api.replace(f"{jobs}/{name}", {**made, "spec": wanted})
    assert stored["spec"]["image"] == "trainer:2"
    assert stored["spec"]["runPolicy"]["suspend"] is after


def test_a_field_that_was_absent_cannot_be_added_to_a_running_job(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name))
    with pytest.raises(ApiError, match="pool can change only while the job is suspended"):
        api.patch(f"{jobs}/{name}", {"spec": {"pool": "gpunp"}})


def test_omitting_a_default_value_is_no_change(api: Api, jobs: str) -> None:
    name = next(NAMES)
    made = api.create(jobs, job(name))
    for optional in ("launcher", "podSecurity", "runPolicy"):
        del made["spec"][optional]
    assert api.replace(f"{jobs}/{name}", made)["metadata"]["generation"] == 1


@pytest.mark.parametrize("change", [{"ttlSecondsAfterFinished": 60}, {"terminate": True}], ids=str)
def test_the_run_policy_of_a_running_job_can_change(api: Api, jobs: str, running_job: Object, change: Object) -> None:
    stored = api.patch(f"{jobs}/running?dryRun=All", {"spec": {"runPolicy": change}})
    assert stored["spec"]["runPolicy"].items() >= change.items()


@pytest.mark.parametrize("suspend", [True, False])
def test_termination_cannot_be_reverted(api: Api, jobs: str, suspend: bool) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, runPolicy={"suspend": suspend, "terminate": True}))
    with pytest.raises(ApiError, match="terminate cannot be reset to false"):
        api.patch(f"{jobs}/{name}", {"spec": {"runPolicy": {"terminate": False}}})


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("before", [None, "horovodjob.dev/operator", "example.org/queue"])
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
    with pytest.raises(ApiError, match=r"managedBy and runPolicy\.managedBy differ"):
        api.create(jobs, job(next(NAMES), managedBy="example.org/a", runPolicy={"managedBy": "example.org/b"}))
    moved = {"managedBy": "example.org/queue", "runPolicy": {"managedBy": None}}
    assert api.patch(f"{jobs}/{name}", {"spec": moved})["spec"]["managedBy"] == "example.org/queue"


def test_labels_and_annotations_of_a_running_job_can_change(api: Api, jobs: str, running_job: Object) -> None:
    stored = api.patch(f"{jobs}/running?dryRun=All", {"metadata": {"labels": {"team": "vision"}}})
    assert stored["metadata"]["labels"] == {"team": "vision"}


@pytest.fixture(scope="module")
def ended_suspended_job(api: Api, jobs: str) -> Object:
    """The jobs of earlier releases can be so: they could be suspended after their end."""
    return ended_job(api, jobs, **with_suspend(BEFORE, True))


@pytest.mark.parametrize("change", CHANGES, ids=change_id)
def test_a_change_of_a_job_that_has_ended_is_rejected_even_if_it_is_suspended(
    api: Api, jobs: str, ended_suspended_job: Object, change: tuple[Path, Any]
) -> None:
    after = {**ended_suspended_job, "spec": with_value(ended_suspended_job["spec"], *change)}
    with pytest.raises(ApiError) as refused:
        api.replace(f"{path_of(jobs, after)}?dryRun=All", after)
    assert refused.value.status == (INVALID if change[0] == ("worker", "replicas") else FORBIDDEN)
    assert f": {field_name(change[0])} {ENDED}" in refused.value.message
    assert "suspended" not in refused.value.message


@pytest.mark.parametrize("field", ["suspend", "terminate"])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_can_be_neither_suspended_nor_terminated(
    api: Api, jobs: str, phase: str, field: str
) -> None:
    ended = ended_job(api, jobs, phase)
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


def test_the_time_to_live_of_a_job_that_has_ended_can_be_set_changed_and_removed(api: Api, jobs: str) -> None:
    path = path_of(jobs, ended_job(api, jobs))
    for seconds in (60, 0, None):
        stored = api.patch(path, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": seconds}}})
        assert stored["spec"]["runPolicy"].get("ttlSecondsAfterFinished") == seconds


@pytest.mark.parametrize("suspend", [True, False])
def test_the_metadata_of_a_job_that_has_ended_can_change(api: Api, jobs: str, suspend: bool) -> None:
    path = path_of(jobs, ended_job(api, jobs, runPolicy={"suspend": suspend}))
    added = {"labels": {"team": "vision"}, "annotations": {"note": "best"}, "finalizers": ["example.org/archive"]}
    stored = api.patch(path, {"metadata": added})
    assert added.items() <= stored["metadata"].items()
    assert "finalizers" not in api.patch(path, {"metadata": {"finalizers": None}})["metadata"]


@pytest.mark.parametrize("suspend", [True, False])
def test_the_status_of_a_job_that_has_ended_can_be_written(api: Api, jobs: str, suspend: bool) -> None:
    ended = ended_job(api, jobs, runPolicy={"suspend": suspend})
    path = f"{path_of(jobs, ended)}/status"
    assert api.patch(path, {"status": {"observedGeneration": 1}})["status"]["observedGeneration"] == 1
    after = {**api.get(path_of(jobs, ended)), "spec": {**ended["spec"], "image": "ignored"}}
    assert api.replace(path, after)["spec"] == ended["spec"]


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


def test_omitting_a_default_value_is_no_change_of_a_job_that_has_ended(api: Api, jobs: str) -> None:
    ended = ended_job(api, jobs)
    for optional in ("launcher", "podSecurity", "runPolicy"):
        del ended["spec"][optional]
    assert api.replace(path_of(jobs, ended), ended)["metadata"]["generation"] == 1


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
    for change in ({"maxReplicas": 4}, None):
        with pytest.raises(ApiError, match="elastic can change only while the job is suspended"):
            api.patch(f"{jobs}/{name}", {"spec": {"elastic": change}})
    with pytest.raises(ApiError, match=r"worker\.slots can change only while the job is suspended"):
        api.patch(f"{jobs}/{name}", {"spec": {"worker": {"slots": 3}}})


def test_the_launcher_command_is_frozen(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, command=None, launcherCommand=["a"]))
    with pytest.raises(ApiError, match="launcherCommand can change only"):
        api.patch(f"{jobs}/{name}", {"spec": {"launcherCommand": ["b"]}})


def test_the_script_is_frozen(api: Api, jobs: str) -> None:
    name = next(NAMES)
    api.create(jobs, job(name, command=None, script={"path": "/a.py"}))
    with pytest.raises(ApiError, match="script can change only"):
        api.patch(f"{jobs}/{name}", {"spec": {"script": {"args": ["x"]}}})
