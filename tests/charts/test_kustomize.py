"""The manifests: each component is applied to a real API server, and compared with the chart object by object."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.test_operator_chart import CHART, is_hook
from horovodjob_operator.settings import Settings
from support.api_client import BASE, Api, Object
from support.helm import Helm

SYSTEM = "horovodjob-system"
COMPONENTS = BASE.parent / "components"
# Labels that identify a Helm release.
OF_RELEASES = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
)
# kustomize sets the namespace of the base on them, and the API server drops it.
WITHOUT_NAMESPACE = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
# The chart knows the account, and the manifests accept each account that an overlay can give the operator.
OF_ACCOUNT = (
    f" == 'system:serviceaccount:{SYSTEM}:horovodjob-operator'",
    ".matches('^system:serviceaccount:[^:]+:([^:]+-)?horovodjob-operator(-[^:]+)?$')",
)
# The alerts of the chart are for one operator, those of the manifests for each.
MATCHERS = re.compile(
    rf'(, )?job="{SYSTEM}/horovodjob-operator"|namespace="{SYSTEM}", deployment="horovodjob-operator"'
    r'|deployment=~"\(\.\+-\)\?horovodjob-operator\(-\.\+\)\?"'
)
IDENTITY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Variant:
    """Components of the manifests, and the values of the chart that render the same objects."""

    components: tuple[str, ...]
    values: Mapping[str, Any]
    """Beside the default ones."""

    def __str__(self) -> str:
        return "+".join(self.components) or "base"


VARIANTS = (
    Variant((), {"replicas": 1}),
    Variant(("ha",), {}),
    Variant(
        ("queue-policy",),
        {"replicas": 1, "kueue": {"queueRequiredIn": {"matchLabels": {"horovodjob.dev/queue-required": "true"}}}},
    ),
    Variant(("namespaced",), {"replicas": 1, "watchNamespaces": ["training"]}),
    Variant(
        ("workload-identity",),
        {
            "replicas": 1,
            "serviceAccount": {"annotations": {"azure.workload.identity/client-id": IDENTITY}},
            "podLabels": {"azure.workload.identity/use": "true"},
            "operator": {"preflight": {"training": ["myaccount"]}},
        },
    ),
    Variant(("network-policy",), {"replicas": 1, "networkPolicy": {"enabled": True}}),
    Variant(("dashboard",), {"replicas": 1, "dashboard": {"enabled": True}}),
    Variant(("kueue",), {"replicas": 1, "kueue": {"enabled": True}}),
    Variant(
        ("monitoring",),
        {
            "replicas": 1,
            "metrics": {name: {"enabled": True} for name in ("podMonitor", "prometheusRule", "dashboards")},
        },
    ),
)


def kustomized(api: Api, variant: Variant, directory: Path) -> str:
    """The output of `kubectl kustomize` for an overlay of the base with the components."""
    overlay = {
        "resources": [os.path.relpath(BASE, directory)],
        "components": [os.path.relpath(COMPONENTS / name, directory) for name in variant.components],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(overlay))
    done = api.kubectl("kustomize", str(directory))
    assert done.returncode == 0, done.stderr
    return done.stdout


def comparable(text: str) -> dict[tuple[str, str, str], Object]:
    """The objects by kind, namespace and name, without intended differences."""
    for account in OF_ACCOUNT:
        text = text.replace(account, "")
    text = re.sub(f"{SYSTEM}[:.](?=horovodjob-operator[^:])", "", text)  # of cluster-scoped names
    text = re.sub(
        r"horovodjob-operator-(edit|view|nodes|metrics-reader|progress|metrics|dashboards?)\b", r"horovodjob-\1", text
    )
    found = {}
    for each in yaml.load_all(text, Loader=yaml.CSafeLoader):
        if each and each["kind"] != "Namespace" and not is_hook(each):
            each["metadata"].get("labels", {}).pop("app.kubernetes.io/name", None)
            each["metadata"].get("annotations", {}).pop("helm.sh/resource-policy", None)
            metadata = each["metadata"]
            if each["kind"] in WITHOUT_NAMESPACE:
                metadata.pop("namespace", None)
            found[each["kind"], metadata.get("namespace", ""), metadata["name"]] = _plain(each)
    return found


def _plain(value: Any) -> Any:
    """A part of an object with sorted rules, parsed settings, and without defaults of Kubernetes."""
    if isinstance(value, list):
        items = [_plain(each) for each in value]
        is_rules = all(isinstance(each, dict) and "verbs" in each for each in items)
        return sorted(items, key=str) if is_rules else items
    if isinstance(value, str):
        return MATCHERS.sub("", value).replace("{}", "")
    if not isinstance(value, dict):
        return value
    plain = {key: _plain(inner) for key, inner in value.items() if key not in OF_RELEASES}
    if plain.get("imagePullPolicy") == "IfNotPresent":
        del plain["imagePullPolicy"]
    if "containerPort" not in plain and isinstance(plain.get("env"), list):
        plain["env"] = _settings(plain["env"])
    return {key: inner for key, inner in plain.items() if inner not in ({}, [], None)}


def _settings(env: list[Object]) -> Settings:
    """The operator's settings in a pod of the namespace."""
    fields = {"metadata.namespace": SYSTEM, "metadata.name": "pod"}
    variables = {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in env
    }
    return Settings.from_environment({name: expanded(value, variables) for name, value in variables.items()})


def expanded(value: str, variables: Mapping[str, str]) -> str:
    """The value of a variable in a container, with those that it refers to."""
    return re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], value)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_chart_and_manifests_contain_the_same_objects(variant: Variant, api: Api, helm4: Helm, tmp_path: Path) -> None:
    # kustomize cannot set the registry of the images of jobs: an overlay names them, see docs/install.md.
    (tmp_path / "values.yaml").write_text(json.dumps({"jobDefaults": {"image": None}, **variant.values}))
    options = ("--namespace", SYSTEM, "--values", str(tmp_path / "values.yaml"))
    chart = comparable(helm4("template", "horovodjob-operator", str(CHART), *options))
    manifests = comparable(kustomized(api, variant, tmp_path))
    assert sorted(chart) == sorted(manifests)
    for key, expected in manifests.items():
        assert chart[key] == expected


def test_the_server_accepts_all_components_together_and_each_is_tested(api: Api, tmp_path: Path) -> None:
    components = {name for each in VARIANTS for name in each.components}
    assert {path.name for path in COMPONENTS.iterdir()} == components
    api.kubectl("create", "namespace", "training")
    # The cluster has no definitions of the Prometheus operator.
    rendered = kustomized(api, Variant(tuple(sorted(components - {"monitoring"})), {}), tmp_path)
    done = api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=rendered)
    assert (done.returncode, "would violate" in done.stderr) == (0, False), done.stderr


# An overlay with both `namespace` and `namespaced` would move the Role out of the namespace of the jobs.
@pytest.mark.parametrize(
    ("layered", "names"),
    [(False, {}), (True, {"namePrefix": "ml-", "nameSuffix": "-x"})],
    ids=["one overlay", "components over an overlay with a prefix and a suffix"],
)
def test_an_overlay_has_the_operator_in_another_namespace(
    layered: bool, names: Object, api: Api, tmp_path: Path
) -> None:
    chosen = sorted(path.name for path in COMPONENTS.iterdir() if layered or path.name != "namespaced")
    base, components = tmp_path / "base", [os.path.relpath(COMPONENTS / name, tmp_path) for name in chosen]
    base.mkdir()
    inner = {"namespace": "ml-system", "resources": [os.path.relpath(BASE, base if layered else tmp_path)], **names}
    outer = {"resources": ["base"], "components": components} if layered else inner | {"components": components}
    (base / "kustomization.yaml").write_text(json.dumps(inner))
    (tmp_path / "kustomization.yaml").write_text(json.dumps(outer))
    done = api.kubectl("kustomize", str(tmp_path))
    assert done.returncode == 0, done.stderr
    objects = list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))
    assert SYSTEM not in done.stdout
    accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    subjects = [subject for each in objects for subject in each.get("subjects", ())]
    assert {(one["namespace"], one["name"] in accounts) for one in subjects} == {("ml-system", True)}
    assert_references(objects, accounts)


def assert_references(objects: list[Object], accounts: set[str]) -> None:
    """Names of objects in fields that kustomize does not know."""
    (operator,) = (
        container
        for each in objects
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
        if container["name"] == "operator"
    )
    variables = {each["name"]: each.get("value", "ml-system") for each in operator["env"]}
    progress = expanded(expanded(variables["HOROVODJOB_OPERATOR_PROGRESS_URL"], variables), variables)
    services = {each["metadata"]["name"] for each in objects if each["kind"] == "Service"}
    assert progress.removeprefix("http://").partition(".ml-system.svc:8081/")[0] in services
    (secret,) = (each for each in objects if each["kind"] == "Secret")
    (monitor,) = (each for each in objects if each["kind"] == "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"]["name"] == secret["metadata"]["name"]
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] in accounts
