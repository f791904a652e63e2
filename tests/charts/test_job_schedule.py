"""The chart of a job with a schedule: the CronJob, its rights, and what the values are refused for."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from charts.test_job_chart import CHART, COLLECTION, MINIMAL
from support.api_client import ROOT, Api, Object
from support.helm import Helm

CRON: Object = {"cron": "0 2 * * *"}
NAMESPACE = "schedules"
EXPERIMENT = "horovodjob.dev/experiment"
EXAMPLE = CHART / "ci" / "nightly-values.yaml"


def by_kind(objects: list[Object]) -> dict[str, Object]:
    return {each["kind"]: each for each in objects}


def rendered(helm: Helm, name: str = "nightly", **values: Any) -> dict[str, Object]:
    """The objects of a release with these values, by kind."""
    values = {**MINIMAL, "schedule": CRON, **values}
    return by_kind(helm.objects(name, str(CHART), "--values=-", stdin=json.dumps(values)))


def job_of(objects: dict[str, Object]) -> Object:
    """The HorovodJob that each run creates."""
    made: Object = yaml.safe_load(objects["ConfigMap"]["data"]["job.yaml"])
    return made


def without_labels(each: Any) -> Any:
    """The object without the labels of the release, and without the namespace."""
    if isinstance(each, dict):
        kept = {key: without_labels(value) for key, value in each.items() if key not in ("labels", "namespace")}
        return {key: value for key, value in kept.items() if value != {}}
    return [without_labels(one) for one in each] if isinstance(each, list) else each


def test_the_example_of_kustomize_has_the_objects_of_the_chart(helm4: Helm, api: Api) -> None:
    text = api.kubectl("kustomize", str(ROOT / "manifests" / "schedule")).stdout
    example = by_kind(list(yaml.safe_load_all(text)))
    chart = by_kind(helm4.objects("nightly", str(CHART), "--values", str(EXAMPLE)))
    assert job_of(example) == job_of(chart)
    for kind in ("ServiceAccount", "Role", "RoleBinding", "CronJob"):
        assert without_labels(example[kind]) == without_labels(chart[kind])


@pytest.fixture
def namespace(api: Api) -> str:
    """A namespace at Pod Security restricted, which also warns about what it would refuse."""
    modes = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    if not api.find(f"/api/v1/namespaces/{NAMESPACE}"):
        api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": modes}})
    return NAMESPACE


def test_the_api_server_accepts_the_schedule_and_its_pods_at_pod_security_restricted(
    helm: Helm, api: Api, namespace: str
) -> None:
    release = ("nightly", str(CHART), "--values", str(EXAMPLE), "--namespace", namespace)
    helm("install", *release, "--set", "schedule.suspend=true")
    cron_job = api.get(f"/apis/batch/v1/namespaces/{namespace}/cronjobs/nightly")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"] | {"kind": "Pod"}
    pod["metadata"] = {"name": "a", "labels": {"batch.kubernetes.io/job-name": "a"}}
    api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", pod)
    text = api.get(f"/api/v1/namespaces/{namespace}/configmaps/nightly")["data"]["job.yaml"]
    job = yaml.safe_load(text)
    job["metadata"] |= {"name": "a", "namespace": "default"}
    api.create(f"{COLLECTION}?dryRun=All&fieldValidation=Strict", job)
    helm("upgrade", *release, "--set", "schedule.suspend=false")
    helm("uninstall", "nightly", "--namespace", namespace)


def test_the_times_of_a_schedule_are_checked_at_its_installation(helm4: Helm, namespace: str) -> None:
    for schedule, words in (({"cron": "2 o'clock"}, "spec.schedule"), ({**CRON, "timeZone": "Mars"}, "spec.timeZone")):
        values = json.dumps({**MINIMAL, "schedule": schedule})
        refusal = helm4.refusal("install", "wrong", str(CHART), "-n", namespace, "--values=-", stdin=values)
        assert words in refusal
        helm4("uninstall", "wrong", "-n", namespace)


def test_the_schedule_has_only_what_is_set_and_the_rights_to_create_and_patch_jobs(helm4: Helm) -> None:
    fields = yaml.safe_load((CHART / "values.yaml").read_text())["schedule"]
    for schedule in (CRON, {**dict.fromkeys(fields), **CRON}):
        objects = rendered(helm4, schedule=schedule)
        spec = objects["CronJob"]["spec"]
        assert set(spec) == {"schedule", "concurrencyPolicy", "jobTemplate"}
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"] == "horovodjob/hvj:0.1.0"
    assert job_of(objects)["spec"] == MINIMAL
    assert job_of(objects)["metadata"]["labels"] == {EXPERIMENT: "nightly"}
    (rule,) = objects["Role"]["rules"]
    assert rule == {
        "apiGroups": ["horovodjob.dev"],
        "resources": ["horovodjobs"],
        "verbs": ["create", "get", "list", "watch", "patch"],
    }


def test_values_of_the_schedule_and_of_the_job_reach_the_runs(helm4: Helm) -> None:
    given = {"suspend": False, "startingDeadlineSeconds": 60, "successfulJobsHistoryLimit": 0}
    labels: dict[str, Any] = {
        "experiment": "resnet",
        "queue": "gpus",
        "labels": {"team": "a"},
        "annotations": {"note": "b"},
    }
    objects = rendered(helm4, schedule={**CRON, **given, "serviceAccountName": "runs"}, **labels)
    assert set(objects) == {"ConfigMap", "CronJob"}, "the cluster has the account"
    spec = objects["CronJob"]["spec"]
    assert spec.items() >= given.items()
    assert spec["jobTemplate"]["spec"]["template"]["spec"]["serviceAccountName"] == "runs"
    metadata = job_of(objects)["metadata"]
    assert metadata["labels"] == {EXPERIMENT: "resnet", "kueue.x-k8s.io/queue-name": "gpus", "team": "a"}
    assert metadata["annotations"] == {"note": "b"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"schedule": {"timeZone": "Europe/Berlin"}}, "schedule.timeZone has an effect only with schedule.cron"),
        ({"schedule": {**CRON, "concurrencyPolicy": "forbid"}}, "/schedule/concurrencyPolicy"),
        (
            {"schedule": CRON, "runPolicy": {"ttlSecondsAfterFinished": 60}},
            "set schedule.ttlSecondsAfterFinished instead",
        ),
        ({"schedule": CRON, "nameSuffixHash": True}, "remove nameSuffixHash and run"),
        ({"schedule": CRON, "name": "n" * 43}, "at most 42 characters"),
        ({"schedule": CRON, "command": None}, "exactly one of script, command and launcherCommand"),
        ({"schedule": CRON, "labels": {"horovodjob.dev/experiment": "a"}}, "which the chart sets: remove it"),
    ],
)
def test_invalid_values_are_refused_with_their_name(values: Object, words: str, helm4: Helm) -> None:
    values = {**MINIMAL, **values}
    assert words in helm4.refusal("template", "nightly", str(CHART), "--values=-", stdin=json.dumps(values))


def test_a_release_of_a_job_does_not_become_a_schedule_which_would_delete_the_job(helm4: Helm, api: Api) -> None:
    name = "once"
    plain = ("--set", "image=trainer:1,command={train}")
    helm4("install", name, str(CHART), *plain)
    refusal = helm4.refusal("upgrade", name, str(CHART), *plain, "--set", "schedule.cron=@daily")
    assert f"HorovodJob default/{name} belongs to this release" in refusal
    assert api.find(f"{COLLECTION}/{name}")
