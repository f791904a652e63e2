"""The operator's chart as a release of Helm 3 and 4 on a real API server with controllers, which create the pods."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from charts.readme import documented_values
from charts.test_operator_chart import ALL, CHART, REVIEWS, variables
from support.api_client import BASE, JOBS, ROOT, Api, Object, job, wait_for
from support.helm import HELM3, Helm

NAME = "horovodjob-operator"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/horovodjobs.horovodjob.dev"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NAMESPACE_ADMINS = ROOT / "manifests" / "namespace-admins"
NUMBERS = itertools.count()


def make_namespace(api: Api) -> str:
    """A namespace with Pod Security `restricted`."""
    name = f"restricted-{next(NUMBERS)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    return name


def deployment(namespace: str) -> str:
    """Path of the operator's Deployment."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}"


def is_allowed(api: Api, account: str, verb: str, resource: str, namespace: str) -> bool:
    """Whether the operator of one namespace has a right in another."""
    attributes = {"verb": verb, "resource": resource, "namespace": namespace}
    spec = {"user": f"system:serviceaccount:{account}:{NAME}", "resourceAttributes": attributes}
    return bool(api.create(ACCESS_REVIEWS, {"spec": spec})["status"]["allowed"])


@pytest.fixture(scope="module")
def system(helm: Helm, api: Api) -> Iterator[str]:
    """A namespace with a release, which adopts the present CRD."""
    namespace = make_namespace(api)
    helm("install", NAME, str(CHART), "--namespace", namespace, "--take-ownership")
    yield namespace
    helm("uninstall", NAME, "--namespace", namespace)
    api.delete(f"/api/v1/namespaces/{namespace}")


def test_a_release_is_upgraded_rolled_back_and_removed_without_the_loss_of_a_job(
    helm: Helm, system: str, api: Api
) -> None:
    notes = helm("get", "notes", NAME, "--namespace", system)
    for command in (f"rollout status deployment/{NAME}", f"test {NAME}", "get horovodjobs --watch"):
        assert command in notes

    def pods() -> list[Object]:
        found: list[Object] = api.get(f"/api/v1/namespaces/{system}/pods")["items"]
        return found if len(found) == 2 else []

    accounts = {pod["spec"]["serviceAccountName"] for pod in wait_for("both pods, at Pod Security restricted", pods)}
    assert accounts == {NAME}

    def verbs(role: str) -> set[str]:
        rules = api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["rules"] or ()
        return {verb for rule in rules if "horovodjobs" in rule.get("resources", ()) for verb in rule["verbs"]}

    wait_for("the aggregation", lambda: "create" in verbs("admin") & verbs("edit"))
    wait_for("the aggregation", lambda: verbs("view") == {"get", "list", "watch"})
    before = api.get(deployment(system))["spec"]
    values = ("replicas=3", "operator.logLevel=DEBUG", "jobDefaults.shmSize=1Gi", "podDisruptionBudget.enabled=false")
    helm("upgrade", NAME, str(CHART), "--namespace", system, *(word for value in values for word in ("--set", value)))
    changed = api.get(deployment(system))
    assert changed["spec"]["replicas"] == 3
    assert '"shmSize":"1Gi"' in variables([changed])["HOROVODJOB_OPERATOR_JOB_DEFAULTS"]
    budget = f"/apis/policy/v1/namespaces/{system}/poddisruptionbudgets/{NAME}"
    assert api.find(budget) is None
    helm("rollback", NAME, "1", "--namespace", system)
    assert api.get(deployment(system))["spec"] == before
    assert api.find(budget)
    restore_a_revision_with_another_crd(helm, system, api)
    name = f"stays-{system}"
    uid = api.create(JOBS.format("default"), job(name))["metadata"]["uid"]
    helm("uninstall", NAME, "--namespace", system)
    wait_for("the Deployment to be deleted", lambda: not api.find(deployment(system)))
    assert not api.get(CRD)["metadata"].get("deletionTimestamp")
    helm("install", NAME, str(CHART), "--namespace", system)
    assert api.get(f"{JOBS.format('default')}/{name}")["metadata"]["uid"] == uid
    assert api.find(deployment(system))


def restore_a_revision_with_another_crd(helm: Helm, system: str, api: Api) -> None:
    """A rollback of Helm 3 cannot bring back a definition that the present revision lacks; an upgrade does."""
    release = (NAME, "--namespace", system)
    history = json.loads(helm("history", *release, "--output=json", "--max=1"))
    revision, before = str(history[0]["revision"]), api.get(deployment(system))["spec"]
    helm("upgrade", NAME, str(CHART), *release[1:], "--set", "crds.enabled=false,replicas=3")
    if helm.program == HELM3:
        refusal = helm.refusal("rollback", NAME, revision, *release[1:])
        zero = "0(x0)?"  # as Kubernetes 1.31 writes it
        assert re.search(f"metadata.resourceVersion: Invalid value: {zero}: must be specified for an update", refusal)
    values = helm("get", "values", *release, "--revision", revision, "--output=yaml")
    helm("upgrade", NAME, str(CHART), *release[1:], "--reset-values", "--values=-", stdin=values)
    assert api.get(deployment(system))["spec"] == before
    assert "kind: CustomResourceDefinition" in helm("get", "manifest", *release)


def test_the_server_accepts_what_helm_renders_and_a_dry_run_creates_nothing(helm4: Helm, api: Api) -> None:
    namespace = make_namespace(api)
    absent = ("serviceMonitor", "podMonitor", "prometheusRule", "tls.certManager")
    options = [word for name in absent for word in ("--set", f"metrics.{name}.enabled=false")]
    dry_run(api, helm4, namespace, "--values", str(ALL), *options, "--set", f"watchNamespaces={{{namespace}}}")
    dry_run(api, helm4, namespace, release="hvj.prod")  # a name with a dot
    own = ("--namespace", namespace, "--set", "crds.enabled=false", "--dry-run=server")
    assert "kind: Deployment" in helm4("install", "trial", str(CHART), *own)
    assert api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"] == []


def dry_run(api: Api, helm: Helm, namespace: str, *options: str, release: str = "trial", stdin: str = "") -> None:
    """Has the API server check, without storing them, the objects that Helm renders."""
    rendered = helm("template", release, str(CHART), "--namespace", namespace, *options, stdin=stdin)
    apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
    done = api.kubectl(*apply, stdin=rendered)
    assert (done.returncode, "would violate" in done.stderr) == (0, False), done.stderr


def test_a_value_that_is_null_is_rejected_by_helm_or_accepted_by_the_server(helm4: Helm, api: Api) -> None:
    documented = [path for path, _, _ in documented_values((CHART / "values.yaml").read_text())]
    sections = {path.partition(".")[0] for path in documented if "." in path}
    paths = [path for path in documented if path not in sections]
    refusal = helm4.refusal("template", "trial", str(CHART), "--values=-", stdin=json.dumps(dict.fromkeys(sections)))
    assert [name for name in sections if f"'{name}'" not in refusal] == []
    refused = missing(helm4.refusal("template", "trial", str(CHART), "--values=-", stdin=nulls(paths)))
    assert {"replicas", "image.repository", "operator.logLevel", "rbac.create"} <= refused
    accepted = [path for path in paths if path not in refused and path not in CONTRADICTORY]
    assert {"livenessProbe", "podAnnotations", "resources", "networkPolicy.egress"} <= set(accepted)
    dry_run(api, helm4, make_namespace(api), "--values=-", stdin=nulls(accepted))


# A PodDisruptionBudget needs maxUnavailable or minAvailable, and the namespace of the test the security contexts.
CONTRADICTORY = ("podDisruptionBudget.maxUnavailable", "podSecurityContext", "securityContext")


def nulls(paths: Iterable[str]) -> str:
    """Values that are null at each of the paths, with a NetworkPolicy, as JSON."""
    values: Object = {"networkPolicy": {"enabled": True}}
    for path in paths:
        *parents, key = path.split(".")
        at = values
        for parent in parents:
            at = at.setdefault(parent, {})
        at[key] = None
    return json.dumps(values)


def missing(refusal: str) -> set[str]:
    """The paths of the values that Helm reports as missing."""
    lines = re.findall(r"at '([^']*)': missing propert(?:y|ies) (.*)", refusal)
    return {
        f"{at}/{name}".strip("/").replace("/", ".") for at, names in lines for name in re.findall(r"'(\w+)'", names)
    }


def test_two_operators_of_different_namespaces_share_no_objects(helm4: Helm, api: Api) -> None:
    teams = [make_namespace(api) for _ in range(2)]
    for team in teams:
        values = ("--set", f"watchNamespaces={{{team}}}", "--set", "crds.enabled=false")
        helm4("install", NAME, str(CHART), "--namespace", team, *values)
    for own, other in itertools.permutations(teams):
        assert is_allowed(api, own, "create", "pods", own)
        assert not is_allowed(api, own, "list", "pods", other)
        assert not is_allowed(api, own, "list", "secrets", own)
        assert variables([api.get(deployment(own))])["HOROVODJOB_OPERATOR_NAMESPACES"] == own
    helm4("uninstall", NAME, "--namespace", teams[0])
    assert is_allowed(api, teams[1], "create", "pods", teams[1])


@pytest.fixture(scope="module")
def namespace_admin(api: Api) -> str:
    """A user who may become the administrator of namespaces, in a cluster that is prepared for operators of these."""
    done = api.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(NAMESPACE_ADMINS))
    assert done.returncode == 0, done.stderr

    def may_bind() -> bool:
        rules = api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/admin")["rules"] or ()
        return any("bind" in rule["verbs"] for rule in rules)

    wait_for("the aggregation", may_bind)
    return "jane"


def test_the_administrator_of_a_namespace_installs_an_operator_for_it(
    helm4: Helm, namespace_admin: str, api: Api
) -> None:
    namespace = make_namespace(api)
    binding = ("create", "rolebinding", "admins", "--clusterrole=admin", f"--user={namespace_admin}")
    assert api.kubectl("-n", namespace, *binding).returncode == 0
    values = ("--values", str(NAMESPACE_ADMINS / "values.yaml"), "--set", f"watchNamespaces={{{namespace}}}")
    install = ("install", NAME, str(CHART), "--namespace", namespace, "--kube-as-user", namespace_admin, *values)
    refused = helm4.refusal(*install, "--set", "rbac.clusterRole=")
    assert "attempting to grant RBAC permissions not currently held" in refused
    helm4("uninstall", NAME, "--namespace", namespace, "--ignore-not-found")
    helm4(*install)
    assert is_allowed(api, namespace, "create", "pods", namespace)
    assert not is_allowed(api, namespace, "create", "pods", "default")
    binding = ("create", "rolebinding", "more", "--clusterrole=cluster-admin", f"--user={namespace_admin}")
    assert "forbidden" in api.kubectl("--as", namespace_admin, "-n", namespace, *binding).stderr
    helm4("uninstall", NAME, "--namespace", namespace, "--kube-as-user", namespace_admin)


def test_the_rights_for_operators_of_namespaces_are_those_of_the_operator() -> None:
    def rules(path: Path, name: str) -> list[Object]:
        objects = yaml.safe_load_all(path.read_text())
        found = (
            each["rules"] for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name
        )
        return [rule for rule in next(found) if set(rule["resources"]).isdisjoint(REVIEWS)]

    prepared, base = NAMESPACE_ADMINS / "rbac.yaml", BASE / "rbac.yaml"
    assert rules(prepared, f"{NAME}-namespaced") == rules(base, NAME)
    for name in ("horovodjob-edit", "horovodjob-view", "horovodjob-nodes"):
        assert rules(prepared, name) == rules(base, name)


# Those of the cluster belong to the release of other tests.
WITHOUT_CLUSTER_OBJECTS = "crds.enabled=false,rbac.create=false,rbac.admissionPolicy=false"


def test_the_values_of_an_earlier_chart_are_not_reused_without_the_new_defaults(
    helm4: Helm, api: Api, tmp_path: Path
) -> None:
    earlier = Path(shutil.copytree(CHART, tmp_path / NAME))
    values, schema = (json_or_yaml(earlier / name) for name in ("values.yaml", "values.schema.json"))
    del values["dashboard"]
    schema["required"].remove("dashboard")
    (earlier / "values.yaml").write_text(yaml.safe_dump(values))
    (earlier / "values.schema.json").write_text(json.dumps(schema))
    (earlier / "templates" / "dashboard.yaml").unlink()
    (earlier / "templates" / "NOTES.txt").write_text("")
    namespace = make_namespace(api)
    release = (NAME, "--namespace", namespace)
    options = ("--set", f"{WITHOUT_CLUSTER_OBJECTS},replicas=1,networkPolicy.enabled=false")
    helm4("install", NAME, str(earlier), *release[1:], *options)
    assert "dashboard" in helm4.refusal("upgrade", NAME, str(CHART), *release[1:], "--reuse-values")
    helm4("upgrade", NAME, str(CHART), *release[1:], "--reset-then-reuse-values", "--set", "operator.logLevel=DEBUG")
    helm4("upgrade", NAME, str(CHART), *release[1:], "--reuse-values")
    upgraded = api.get(deployment(namespace))
    assert upgraded["spec"]["replicas"] == 1
    assert variables([upgraded])["HOROVODJOB_OPERATOR_LOG_LEVEL"] == "DEBUG"
    helm4("uninstall", *release)


def json_or_yaml(file: Path) -> Object:
    """A file of the chart."""
    content: Object = yaml.safe_load(file.read_text())
    return content
