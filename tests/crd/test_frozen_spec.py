"""The spec of a job is frozen while it runs, can change while it is suspended, and is final when it has ended."""

import itertools
from typing import Any

import pytest
import yaml

from crd.every_field import WHOLE
from horovodjob.api.frozen_spec import frozen_paths
from support.api_client import FORBIDDEN, INVALID, Api, ApiError, Object, job

# A merge patch of WHOLE that changes each field which it has: scalars, items of lists, and null, which removes.
CHANGES: Object = {
    "image": "trainer:2",
    "imagePullPolicy": "Never",
    "imagePullSecrets": [{"name": "other"}],
    "command": ["python3", "other.py"],
    "env": [{"name": "A", "value": "2"}],
    "envFrom": [{"secretRef": {"name": "settings"}}],
    "worker": {"gpus": 2, "slots": None, "resources": {"limits": {"memory": "1"}}, "template": {"spec": {"a": 1}}},
    "launcher": {"template": {"spec": {"hostNetwork": False}}},
    "pool": "cpunp",
    "nodeSelector": {"gpu": "ssd"},
    "tolerations": [{"key": "a", "operator": "Equal"}],
    "serviceAccountName": "other",
    "podSecurity": "Restricted",
    "volumes": [{"name": "data", "emptyDir": {}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data", "newField": True}],
    "shmSize": "2Gi",
    "mpi": {"args": ["-x", "B"]},
    "spot": False,
    "priorityClassName": "high",
    "azureFiles": [{"name": "data", "account": "mystorageaccount", "share": "other"}],
    "preparation": {"timeoutSeconds": 61},
    "inputs": [{"id": "A", "path": "/other"}],
    "outputs": [{"id": "A", "pathPrefix": "/data"}],
    "logs": None,
    "network": {"isolate": False},
    "scheduling": {"avoidFailedNodes": True},
    "runPolicy": {
        "cleanPodPolicy": "All",
        "onWorkerLoss": "Fail",
        "backoffLimit": 4,
        "activeDeadlineSeconds": None,
        "progressDeadlineSeconds": 900,
        "failOnExitCodes": [2],
    },
}
NOT_IN_WHOLE = {"script", "launcherCommand", "elastic"}
ENDED = "cannot change, because the job has ended and never runs again: create a job with another name"
NAMES = (f"frozen-{number}" for number in itertools.count())


def whole_job(api: Api, jobs: str, *, suspend: bool) -> Object:
    """A job with every field."""
    spec = WHOLE | {"runPolicy": WHOLE["runPolicy"] | {"suspend": suspend}}
    return api.create(jobs, {**job(next(NAMES)), "spec": spec})


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


def refused_fields(api: Api, path: str, spec: Object, words: str, status: int = FORBIDDEN) -> set[str]:
    """The fields that the refusal of a change names before these words."""
    with pytest.raises(ApiError) as refused:
        api.patch(path, {"spec": spec})
    assert refused.value.status == status
    named, found, _ = refused.value.message.partition(f" {words}")
    assert found, refused.value.message
    return set(named.rpartition(": ")[2].split(", "))


def test_each_field_can_change_only_while_the_job_is_suspended_and_not_after_its_end(api: Api, jobs: str) -> None:
    frozen = set(frozen_paths()) - NOT_IN_WHOLE
    running, suspended = (whole_job(api, jobs, suspend=suspend) for suspend in (False, True))
    only = "can change only while the job is suspended: set runPolicy.suspend to true"
    assert refused_fields(api, path_of(jobs, running), CHANGES, only) == frozen
    path = path_of(jobs, suspended)
    stored = api.patch(f"{path}?dryRun=All", {"spec": CHANGES | {"worker": {"replicas": 3}}})["spec"]
    assert (stored["image"], stored["worker"]["replicas"], "logs" in stored) == ("trainer:2", 3, False)
    # The jobs of earlier releases can be so: they could be suspended after their end.
    end(api, path)
    assert refused_fields(api, path, CHANGES, ENDED) == frozen
    resumed = {"image": "trainer:2", "runPolicy": {"backoffLimit": 9, "suspend": False}}
    assert refused_fields(api, path, resumed, ENDED) == {"image", "runPolicy.backoffLimit", "runPolicy.suspend"}


def test_suspension_and_a_change_can_come_in_one_update(api: Api, jobs: str) -> None:
    for suspend in (True, False):
        path = path_of(jobs, whole_job(api, jobs, suspend=not suspend))
        stored = api.patch(path, {"spec": {"image": "trainer:2", "runPolicy": {"suspend": suspend}}})["spec"]
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


def test_labels_time_to_live_and_termination_of_a_running_job_can_change_and_an_omitted_default_is_no_change(
    api: Api, jobs: str
) -> None:
    made = api.create(jobs, job(next(NAMES)))
    for optional in ("launcher", "podSecurity", "runPolicy"):
        del made["spec"][optional]
    path = path_of(jobs, made)
    assert api.replace(path, made)["metadata"]["generation"] == 1
    change = {"ttlSecondsAfterFinished": 60, "terminate": True}
    stored = api.patch(path, {"metadata": {"labels": {"team": "vision"}}, "spec": {"runPolicy": change}})
    assert stored["spec"]["runPolicy"].items() >= change.items()
    assert stored["metadata"]["labels"] == {"team": "vision"}
    for suspend in (True, False):
        with pytest.raises(ApiError, match="terminate cannot be reset to false"):
            api.patch(path, {"spec": {"runPolicy": {"suspend": suspend, "terminate": False}}})


@pytest.mark.parametrize("before", [None, "example.org/queue"])
@pytest.mark.parametrize("place", ["managedBy", "runPolicy.managedBy"])
def test_managed_by_is_immutable_and_can_move_to_the_top_of_the_spec(
    api: Api, jobs: str, before: str | None, place: str
) -> None:
    def spec(manager: str | None) -> Object:
        return {"managedBy": manager} if place == "managedBy" else {"runPolicy": {"managedBy": manager}}

    name = next(NAMES)
    api.create(jobs, job(name, **({} if before is None else spec(before))))
    for suspend in (True, False):
        api.patch(f"{jobs}/{name}", {"spec": {"runPolicy": {"suspend": suspend}}})
        for after in {"example.org/other", None} - {before}:
            with pytest.raises(ApiError, match="managedBy cannot change"):
                api.patch(f"{jobs}/{name}", {"spec": spec(after)})
    if before and place != "managedBy":
        moved = {"managedBy": before, "runPolicy": {"managedBy": None}}
        assert api.patch(f"{jobs}/{name}", {"spec": moved})["spec"]["managedBy"] == before


@pytest.mark.parametrize(
    ("phase", "spec"),
    [
        ("Failed", {}),
        ("Succeeded", {"runPolicy": {"suspend": True}}),
        ("Succeeded", {"elastic": {"minReplicas": 1, "maxReplicas": 4}}),
    ],
)
def test_a_job_that_has_ended_can_be_neither_suspended_terminated_nor_scaled(
    api: Api, jobs: str, phase: str, spec: Object
) -> None:
    path = path_of(jobs, ended_job(api, jobs, phase, **spec))
    for field in ("terminate", *(["suspend"] if phase == "Failed" else [])):
        assert refused_fields(api, path, {"runPolicy": {field: True}}, ENDED) == {f"runPolicy.{field}"}
    for target, body in ((f"{path}/scale", {"replicas": 3}), (path, {"worker": {"replicas": 3}})):
        assert "worker.replicas" in refused_fields(api, target, body, ENDED, INVALID)
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
    for seconds in (60, None):
        stored = api.patch(path, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": seconds}}})
        assert stored["spec"]["runPolicy"].get("ttlSecondsAfterFinished") == seconds
    added = {"labels": {"team": "vision"}, "finalizers": ["example.org/archive"]}
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
