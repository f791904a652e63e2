"""The operator's chart as Helm 3 and 4 render it: values, their schema, and their effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from api.client import BASE, ROOT, Object
from charts.helm import Helm
from charts.readme import documented_values, readme
from horovodjob.api.crd import NEVER_PRUNED
from horovodjob_operator.settings import Settings

CHART = ROOT / "charts" / "horovodjob-operator"
ALL = CHART / "ci" / "all-values.yaml"
RENDERED = ("all", str(CHART), "--namespace", "team-a", "--values", str(ALL))
NAMESPACED_KINDS_ONLY = ("operator.progress=false", "rbac.aggregateClusterRoles=false", "rbac.aggregateToKueue=false")
# Values that other values override, and values that are templates.
OTHERWISE = {"image.tag", "podDisruptionBudget.maxUnavailable", "extraObjects"}


def of_kind(objects: list[Object], kind: str) -> Object:
    """The only object of a kind that is not part of `helm test`."""
    own = [each for each in objects if each["kind"] == kind and not is_hook(each)]
    assert len(own) == 1, f"{len(own)} objects of kind {kind}"
    return own[0]


def is_hook(each: Object) -> bool:
    """Whether an object is part of `helm test`."""
    return "helm.sh/hook" in each["metadata"].get("annotations", {})


def variables(objects: list[Object]) -> dict[str, str]:
    """The operator's variables that have a value."""
    container = of_kind(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def leaves(value: Any) -> Iterator[str]:
    """Strings and numbers in a value, without booleans."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner)
            yield key
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield str(value)


def test_helm_lint_passes(helm: Helm) -> None:
    helm("lint", "--strict", str(CHART))
    helm("lint", "--strict", str(CHART), "--values", str(ALL))


@pytest.mark.parametrize("version", ["1.30.0", "1.36.3"])
def test_the_oldest_and_newest_supported_versions_render_all_values(helm: Helm, version: str) -> None:
    assert of_kind(helm.objects(*RENDERED, "--kube-version", version), "Deployment")


def test_an_older_cluster_is_rejected(helm: Helm) -> None:
    assert ">=1.30.0-0" in helm.refusal("template", "x", str(CHART), "--kube-version", "1.29.9")


def test_names_that_yaml_parses_as_booleans_and_numbers_stay_strings(helm4: Helm) -> None:
    names = "fullnameOverride=on,nameOverride=1,watchNamespaces={1,2e3}"
    rendered = helm4.objects("y", str(CHART), "--namespace", "on", "--set-string", names)

    def wrong(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                is_name = key in ("name", "namespace", "value", "serviceAccountName") or "/" in key
                yield from (
                    [f"{path}.{key}"] if is_name and not isinstance(inner, str) else wrong(inner, f"{path}.{key}")
                )
        elif isinstance(value, list):
            for inner in value:
                yield from wrong(inner, path)

    own = [each for each in rendered if each["kind"] != "CustomResourceDefinition"]
    assert [path for each in own for path in wrong(each, each["kind"])] == []


def test_every_value_is_documented_and_in_the_example_of_all_values() -> None:
    documented = list(documented_values((CHART / "values.yaml").read_text()))
    assert [path for path, _, comment in documented if not comment] == []
    given = yaml.safe_load(ALL.read_text())
    for path, _, _ in documented:
        at: Any = given
        for key in path.split("."):
            assert key in at, f"{path} is not in {ALL.name}"
            at = at[key]


def test_every_value_reaches_an_object(helm4: Helm) -> None:
    rendered = helm4("template", *RENDERED).replace('\\"', '"')
    given = yaml.safe_load(ALL.read_text())
    for path, _, _ in documented_values((CHART / "values.yaml").read_text()):
        at: Any = given
        for key in path.split("."):
            at = at[key]
        if path not in OTHERWISE:
            assert [leaf for leaf in leaves(at) if leaf not in rendered] == [], path
    assert "all-extra-object" in rendered


def test_the_readme_has_the_current_values() -> None:
    assert (CHART / "README.md").read_text() == readme(CHART), "the chart's README.md is out of date: run `make docs`"


def test_the_crd_equals_that_of_the_manifests(helm4: Helm) -> None:
    assert (CHART / "files" / "crd.yaml").read_text() == (BASE / "crd.yaml").read_text(), "run `make crd`"
    kept, given_up = helm4.objects("x", str(CHART)), helm4.objects("x", str(CHART), "--set", "crds.keep=false")
    for shipped in yaml.safe_load_all((BASE / "crd.yaml").read_text()):
        rendered = of_kind(kept, shipped["kind"])
        assert rendered["metadata"]["name"] == shipped["metadata"]["name"]
        assert rendered["metadata"]["annotations"] == NEVER_PRUNED | {"helm.sh/resource-policy": "keep"}
        assert shipped["metadata"]["annotations"] == NEVER_PRUNED
        assert rendered["spec"] == shipped["spec"]
        assert "annotations" not in of_kind(given_up, shipped["kind"])["metadata"]


def test_the_schema_is_closed_at_every_level_and_has_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def open_ends(part: Object, values: Any, path: str) -> Iterator[str]:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if "properties" in part and part.get("additionalProperties") is not False:
            yield f"{path} accepts unknown keys"
        for key, value in values.items() if isinstance(values, dict) else ():
            if "properties" in part and key not in part["properties"]:
                yield f"{path}.{key} has no schema"
            elif "properties" in part:
                yield from open_ends(part["properties"][key], value, f"{path}.{key}")

    assert list(open_ends(schema, yaml.safe_load(ALL.read_text()), "")) == []


def test_unknown_and_invalid_values_are_rejected_with_their_paths(helm: Helm) -> None:
    unknown = ("replica=3", "image.tags=1", "metrics.podMonitor.labls.a=b", "jobDefaults.tolerations[0].kye=sku")
    wrong = ("replicas=many", "image.digest=sha256:1", "watchNamespaces={Team_A}", "operator.logLevel=LOUD")
    options = [word for value in (*unknown, *wrong) for word in ("--set", value)]
    refusal = helm.refusal("template", "x", str(CHART), *options)
    words = ("replica'", "tags'", "labls'", "kye'", "/replicas", "/image/digest", "/watchNamespaces/0", "/logLevel")
    assert [word for word in words if word not in refusal.replace(".", "/")] == []


def test_job_defaults_are_a_setting_that_the_operator_accepts(helm4: Helm) -> None:
    settings = Settings.from_environment(variables(helm4.objects(*RENDERED)))
    assert settings.defaults.shm_size == "3Gi"
    assert settings.defaults.mount_options == ("actimeo=7", "nosharesock")
    assert settings.defaults.tolerations[0].value == "vision"
    assert settings.watched_namespaces == ("default", "team-a")


def test_without_job_defaults_the_setting_is_absent(helm4: Helm) -> None:
    assert "HOROVODJOB_OPERATOR_JOB_DEFAULTS" not in variables(helm4.objects("x", str(CHART)))


def test_an_operator_of_some_namespaces_has_roles_in_them_only(helm4: Helm) -> None:
    options = [word for value in NAMESPACED_KINDS_ONLY for word in ("--set", value)]
    objects = helm4.objects("x", str(CHART), *options, "--set", "crds.enabled=false", "--set", "watchNamespaces={a,b}")
    assert not [each for each in objects if each["kind"].startswith("Cluster")]
    roles = [each for each in objects if each["kind"] == "Role" and not is_hook(each)]
    assert {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in roles} == {
        ("a", "x-horovodjob-operator"),
        ("b", "x-horovodjob-operator"),
        ("default", "x-horovodjob-operator-lease"),
    }


def test_contradictory_values_are_rejected(helm: Helm) -> None:
    template = ("template", "x", str(CHART), "--set")
    assert "set replicas to 1" in helm.refusal(*template, "leaderElection.enabled=false")
    assert "name the namespaces" in helm.refusal(*template, "rbac.scope=namespace")
    assert "needs a Service" in helm.refusal(
        *template, "metrics.serviceMonitor.enabled=true,metrics.service.enabled=false"
    )


def test_an_operator_of_some_namespaces_can_have_a_cluster_role(helm4: Helm) -> None:
    objects = helm4.objects("x", str(CHART), "--set", "rbac.scope=cluster,watchNamespaces={a,b}")
    assert {each["metadata"]["namespace"] for each in objects if each["kind"] == "Role" and not is_hook(each)} == {
        "default"
    }
    assert [each for each in objects if each["metadata"]["name"] == "default:x-horovodjob-operator"]


def test_one_replica_has_no_disruption_budget(helm4: Helm) -> None:
    kinds = {each["kind"] for each in helm4.objects("x", str(CHART), "--set", "replicas=1")}
    assert "PodDisruptionBudget" not in kinds
