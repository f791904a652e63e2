"""The chart of a job: rendered objects, and installation, upgrade and removal of releases."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.readme import documented_values, readme
from crd.every_field import WHOLE
from horovodjob.api.chart import values_schema_json
from horovodjob.api.crd import schema_of
from horovodjob.api.spec import HorovodJobSpec
from support.api_client import JOBS, ROOT, Api, Object, job, wait_for
from support.helm import HELM3, Helm

CHART = ROOT / "charts" / "horovodjob"
EXAMPLES = ROOT / "manifests" / "examples"
COLLECTION = JOBS.format("default")
MINIMAL: Object = {"image": "trainer:1", "command": ["train"]}
NAMES = (f"run{number}" for number in itertools.count())
OTHER_FIELDS = {"script", "launcherCommand", "env", "elastic"}
# A value for each field of the spec that can be combined with the others, empty ones and a large number among them.
FIELDS: Object = {name: value for name, value in WHOLE.items() if name not in OTHER_FIELDS} | {
    "nodeSelector": {"disk": ""},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "outputs": [{"id": "A", "pathPrefix": "/data", "pathSuffix": ""}],
    "runPolicy": WHOLE["runPolicy"] | {"activeDeadlineSeconds": 1000000, "backoffLimit": 0},
}


@pytest.fixture(scope="module")
def rendered(helm4: Helm) -> Callable[[Object], Object]:
    """The job that `helm template` renders from values."""

    @functools.cache
    def template(values: str) -> str:
        return helm4("template", "train", str(CHART), "--values=-", stdin=values)

    def render(values: Object) -> Object:
        made: Object = yaml.safe_load(template(json.dumps(values)))
        return made

    return render


def test_schema_readme_and_values_are_those_of_the_models() -> None:
    shipped = (CHART / "values.schema.json").read_text()
    assert shipped == values_schema_json(CHART), "charts/horovodjob/values.schema.json is out of date: run `make crd`"
    assert (CHART / "README.md").read_text() == readme(CHART), "run `make docs`"
    assert all(meaning for _, _, meaning in documented_values((CHART / "values.yaml").read_text()))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    fields = schema_of(HorovodJobSpec)["properties"]
    assert set(fields) == set(FIELDS) | OTHER_FIELDS <= set(defaults)
    for name in ("runPolicy", "worker"):
        assert set(fields[name]["properties"]) == set(defaults[name]) == set(FIELDS[name])


def test_a_value_reaches_the_spec_unchanged_and_only_what_is_set_is_rendered(
    rendered: Callable[[Object], Object],
) -> None:
    """A default in the manifest would undo `hvj job suspend` with each apply, and fight with `hvj job terminate`."""
    assert rendered(FIELDS)["spec"] == FIELDS
    assert rendered(MINIMAL)["spec"] == MINIMAL
    assert rendered({**MINIMAL, "worker": {"gpus": 0}})["spec"] == {**MINIMAL, "worker": {"gpus": 0}}


def values_of(example: str) -> Path:
    """The values with which the chart renders an example."""
    return CHART / "ci" / f"{example}-values.yaml"


def test_lint_accepts_the_chart_and_the_oldest_version_renders_it(helm: Helm) -> None:
    helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / "nightly-values.yaml"))
    example = ("template", "train", str(CHART), "--values", str(CHART / "ci" / "digits-values.yaml"))
    helm(*example, "--kube-version=1.31.0")
    assert ">=1.31.0" in helm.refusal(*example, "--kube-version=1.30.9")


# Those without an example are of a schedule.
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.yaml") if values_of(path.stem).exists()))
def test_the_values_of_an_example_render_its_job(name: str, rendered: Callable[[Object], Object], api: Api) -> None:
    values, example = yaml.safe_load(values_of(name).read_text()), EXAMPLES / f"{name}.yaml"
    assert (
        with_server_defaults(api, rendered(values))["spec"]
        == with_server_defaults(api, yaml.safe_load(example.read_text()))["spec"]
    )


def with_server_defaults(api: Api, given: Object) -> Object:
    """The job with the defaults of the API server."""
    given["metadata"]["namespace"] = "default"
    return api.create(f"{COLLECTION}?dryRun=All&fieldValidation=Strict", given)


def test_a_value_that_is_null_or_absent_is_left_to_the_resource(helm4: Helm, api: Api) -> None:
    nulls = dict.fromkeys(yaml.safe_load((CHART / "values.yaml").read_text())) | {"command": ["train"]}
    for values in (nulls, nulls | {"queue": "gpus"}, {"command": ["train"]}):
        made = yaml.safe_load(helm4("template", "train", str(CHART), "--values=-", stdin=json.dumps(values)))
        plain = job(image="", command=["train"], worker=None)
        assert with_server_defaults(api, made)["spec"] == with_server_defaults(api, plain)["spec"]


def test_names_fit_or_are_refused_and_stay_strings(helm4: Helm, rendered: Callable[[Object], Object]) -> None:
    template = ("template", "run.1", str(CHART), "--set", "image=trainer:1,command={train}")
    assert "a name of a job has no dots: set name" in helm4.refusal(*template)
    helm4(*template, "--set", "name=run-1")
    words = ("--set-string", "experiment=1e3,queue=no", "--namespace", "1", "--set", "name=n")
    metadata = yaml.safe_load(helm4(*template, *words))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("n", "1")
    assert all(isinstance(value, str) for value in metadata["labels"].values())
    name = rendered({**HASHED, "name": "a" * 54})["metadata"]["name"]
    assert (name[:46], len(name)) == ("a" * 45 + "-", 54), "room for the hash"


def test_a_number_that_helm_reads_inexactly_is_refused(helm: Helm) -> None:
    numbers = {"parameters": 9007199254740993, "env": -9007199254740995}
    for where, number in numbers.items():
        given = json.dumps({**MINIMAL, where: {"SEED": number}})
        refusal = helm.refusal("template", "train", str(CHART), "--values=-", stdin=given)
        assert f"{where}.SEED is" in refusal
        assert "quote it" in refusal
    quoted = {where: {"SEED": str(number)} for where, number in numbers.items()}
    made = helm("template", "train", str(CHART), "--values=-", stdin=json.dumps(MINIMAL | quoted))
    assert [number for number in numbers.values() if str(number) not in made] == []


def test_parameters_and_variables_keep_their_numbers(rendered: Callable[[Object], Object]) -> None:
    given = {"lr": 0.00001, "steps": 1000000, "shuffle": True, "name": 'a "b" <c>'}
    spec = rendered({**MINIMAL, "parameters": given, "env": given})["spec"]
    assert spec["command"] == ["train", "--lr=0.00001", '--name=a "b" <c>', "--shuffle=true", "--steps=1000000"]
    assert {variable["name"]: variable["value"] for variable in spec["env"]}["steps"] == "1000000"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("run=2", "run has an effect only on a name with a hash: set nameSuffixHash too"),
        ("command=null", "exactly one of script, command and launcherCommand; set are: none"),
        ("script.path=a.py", "exactly one of script, command and launcherCommand; set are: command, script"),
        ("priority=urgent", "priority has an effect only in a queue: set queue too"),
        (
            r"labels.app\.kubernetes\.io/name=a",
            "labels has the key app.kubernetes.io/name, which the chart sets: remove it",
        ),
    ],
)
def test_invalid_values_are_rejected_with_their_name(values: str, words: str, helm4: Helm) -> None:
    minimal = ("--set", "image=trainer:1,command={train}")
    assert words in helm4.refusal("template", "train", str(CHART), *minimal, "--set", values)


def test_values_that_the_schema_does_not_have_are_rejected_with_their_paths(helm4: Helm) -> None:
    wrong = ("workers.replicas=2", "worker.replicas=many", "env.2ND=a", "env.A.valueFrm.a=1", "labels.team=a b")
    refusal = helm4.refusal("template", "train", str(CHART), *(word for each in wrong for word in ("--set", each)))
    words = ("'workers'", "/worker/replicas", "'/env': additional properties '2ND'", "valueFrm", "/labels/team")
    assert [word for word in words if word not in refusal] == []


class Release:
    """A release of the job chart."""

    def __init__(self, helm: Helm, api: Api, name: str) -> None:
        self.helm, self.api, self.name = helm, api, name

    def values(self, **values: Any) -> tuple[str, ...]:
        """Options of Helm for a small job with these values."""
        return tuple(f"--set-json={name}={json.dumps(value)}" for name, value in {**MINIMAL, **values}.items())

    def upgrade(self, **values: Any) -> None:
        self.helm("upgrade", self.name, str(CHART), *self.values(**values))

    def refusal(self, *options: str, **values: Any) -> str:
        """The error of an upgrade with these values."""
        return self.helm.refusal("upgrade", self.name, str(CHART), *self.values(**values), *options)

    @property
    def path(self) -> str:
        """Path of the job."""
        return f"{COLLECTION}/{self.name}"

    @property
    def spec(self) -> Object:
        spec: Object = self.api.get(self.path)["spec"]
        return spec

    def report(self, phase: str, ready: str = "True") -> None:
        """Writes the status that the operator would write."""
        conditions = [condition("Ready", ready), *([condition("Stalled", "True")] if phase == "Failed" else [])]
        status = {"observedGeneration": 1, "phase": phase, "conditions": conditions}
        self.api.patch(f"{self.path}/status", {"status": status})


def install(helm: Helm, api: Api) -> Release:
    """A job as a release."""
    made = Release(helm, api, next(NAMES))
    made.helm("install", made.name, str(CHART), *made.values(parameters={"lr": 1}))
    return made


@pytest.fixture
def release(helm4: Helm, api: Api) -> Release:
    return install(helm4, api)


def condition(kind: str, status: str) -> Object:
    """A condition as the operator writes it."""
    words = {"reason": "Test", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    return {"type": kind, "status": status, "observedGeneration": 1, **words}


def test_an_upgrade_of_a_job_that_runs_or_has_ended_is_rejected_with_the_fields_and_its_removal_deletes_the_job(
    helm: Helm, api: Api
) -> None:
    release = install(helm, api)
    release.report("Running")
    changes: Object = {"image": "trainer:2", "worker": {"replicas": 2}, "parameters": {"lr": 2}}
    refusal = release.refusal(**changes)
    assert f"HorovodJob default/{release.name} is not suspended (Running)" in refusal
    assert "command, image, worker.replicas." in refusal
    assert "--set runPolicy.suspend=true" in refusal
    assert "runPolicy.ttlSecondsAfterFinished" in refusal
    assert release.refusal("--dry-run=server", **changes) == refusal
    release.upgrade(parameters={"lr": 1}, runPolicy={"ttlSecondsAfterFinished": 60})
    assert release.spec["runPolicy"]["ttlSecondsAfterFinished"] == 60
    release.report("Failed")
    refusal = release.refusal(image="trainer:2", parameters={"lr": 1}, runPolicy={"suspend": True})
    assert "has ended (Failed) and never runs again, so these fields cannot change: image." in refusal
    assert f"helm uninstall {release.name} --namespace default" in refusal
    release.upgrade(parameters={"lr": 1})
    release.helm("uninstall", release.name)
    wait_for("the job to be deleted", lambda: not release.api.find(release.path))


def test_an_upgrade_changes_a_suspended_job_scales_an_elastic_one_and_leaves_what_somebody_has_decided(
    release: Release,
) -> None:
    release.report("Running")
    elastic = {"minReplicas": 1, "maxReplicas": 4}
    release.upgrade(image="trainer:2", parameters={}, elastic=elastic, runPolicy={"suspend": True})
    release.report("Suspended")
    release.upgrade(image="trainer:3", parameters={"lr": 3}, elastic=elastic)
    assert (release.spec["image"], release.spec["command"]) == ("trainer:3", ["train", "--lr=3"])
    assert not release.spec["runPolicy"]["suspend"]
    release.report("Running")
    final: Object = {"image": "trainer:3", "parameters": {"lr": 3}, "elastic": elastic, "worker": {"replicas": 3}}
    release.upgrade(**final)
    assert release.spec["worker"]["replicas"] == 3
    before = release.spec
    release.upgrade(**final, queue="gpus", priority="urgent", experiment="cifar")
    labels = release.api.get(release.path)["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "gpus"
    assert labels["kueue.x-k8s.io/priority-class"] == "urgent"
    assert labels["horovodjob.dev/experiment"] == "cifar"
    assert release.spec == before
    release.api.patch(release.path, {"spec": {"runPolicy": {"suspend": True}}})
    release.upgrade(**final | {"parameters": {"lr": 2}})
    assert release.spec["runPolicy"]["suspend"]
    release.api.patch(release.path, {"spec": {"runPolicy": {"terminate": True}}})
    release.upgrade(**final | {"parameters": {"lr": 2}})
    assert release.spec["runPolicy"]["terminate"]


HASHED: Object = {**MINIMAL, "nameSuffixHash": True}
ELASTIC: Object = {**HASHED, "elastic": {"minReplicas": 1, "maxReplicas": 4}, "worker": {"replicas": 2}}


@pytest.mark.parametrize(
    ("values", "changes", "is_another"),
    [
        (HASHED, {"image": "trainer:2"}, True),
        (HASHED, {"runPolicy": {"backoffLimit": 1}}, True),
        (HASHED, {"run": "2"}, True),
        (ELASTIC, {"elastic": {"minReplicas": 1, "maxReplicas": 5}}, True),
        (ELASTIC, {"worker": {"replicas": 3}}, False),
        (HASHED, {"runPolicy": {"suspend": True, "terminate": True, "ttlSecondsAfterFinished": 60}}, False),
        (
            HASHED,
            {"worker": {"replicas": 1}, "podSecurity": "Restricted", "queue": "gpus", "labels": {"a": "b"}},
            False,
        ),
    ],
)
def test_the_hash_of_a_name_changes_with_what_is_frozen(
    values: Object, changes: Object, is_another: bool, rendered: Callable[[Object], Object]
) -> None:
    before, after = (rendered(one)["metadata"]["name"] for one in (values, {**values, **changes}))
    assert (before != after) is is_another


def test_the_hash_of_values_is_the_same_in_each_release_of_the_chart(helm: Helm) -> None:
    """Another hash would run each training again when the chart is upgraded."""
    program = {"image": "trainer:1", "command": ["train"], "parameters": {"lr": 0.01, "steps": 1000000}}
    values = {**program, "worker": {"replicas": 2}, "env": {"A": True}, "shmSize": "1Gi", "run": 2}
    values["nameSuffixHash"] = True
    made = yaml.safe_load(helm("template", "train", str(CHART), "--values=-", stdin=json.dumps(values)))
    assert made["metadata"]["name"] == "train-e7a399fa"


def test_a_release_that_gets_hashes_keeps_its_job(release: Release) -> None:
    uid = release.api.get(release.path)["metadata"]["uid"]
    keep = f"kubectl --namespace default annotate horovodjob {release.name} helm.sh/resource-policy=keep"
    assert keep in release.refusal(nameSuffixHash=True)
    done = release.api.kubectl(*keep.split()[1:])
    assert done.returncode == 0, done.stderr
    release.upgrade(nameSuffixHash=True)
    assert release.api.get(release.path)["metadata"]["uid"] == uid


def test_a_change_is_another_run_beside_the_earlier_one(helm: Helm, api: Api) -> None:
    name = next(NAMES)

    def runs() -> dict[str, str]:
        found = api.get(f"{COLLECTION}?labelSelector=app.kubernetes.io/instance={name}")["items"]
        return {one["spec"]["image"]: one["metadata"]["uid"] for one in found}

    def apply(image: str, **values: Any) -> None:
        given = json.dumps({**HASHED, "image": image, **values})
        helm("upgrade", "--install", name, str(CHART), "--values=-", stdin=given)

    apply("trainer:1")
    first = runs()
    apply("trainer:2")
    both = runs()
    assert both.keys() == {"trainer:1", "trainer:2"}
    assert both["trainer:1"] == first["trainer:1"]
    apply("trainer:2", runPolicy={"suspend": True})
    assert runs() == both, "a suspension is no other run"
    if helm.program == HELM3:
        assert "metadata.resourceVersion" in helm.refusal("rollback", name, "1")
        apply("trainer:1")
    else:
        helm("rollback", name, "1")
    assert runs() == both, "the earlier run, which may have ended, is the release's again, and none is started"
    apply("trainer:2")
    assert runs() == both
    helm("uninstall", name)
    assert runs() == both, "only a user deletes a run"
