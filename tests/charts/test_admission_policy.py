"""What a stolen token of the operator can do, for each way to install it: attacks, and what the collector deletes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.test_operator_chart import CHART
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain.resources.launcher import launcher_pod
from horovodjob_operator.domain.resources.network import network_policy, service
from horovodjob_operator.domain.resources.secret import keys_secret, scripts_secret
from horovodjob_operator.domain.resources.worker import worker_pod
from support.api_client import BASE, JOBS, Api, ApiError, Object, wait_for
from support.control_plane.operator_control_plane import account_kubeconfig
from support.helm import Helm
from support.job_driver import restricted_pod, submit

NOT_OF_JOB = "it has no HorovodJob as its controller"
FALSE_OWNER = {
    "apiVersion": "horovodjob.dev/v1beta1",
    "kind": "HorovodJob",
    "name": "no",
    "uid": "11111111-2222-4333-8444-555555555555",
    "controller": True,
}
TEAM = "team-policy"


@dataclass(frozen=True)
class Installation:
    """An operator that is installed without its Deployment, and the API server with its token."""

    api: Api
    namespace: str

    def create(self, namespace: str, body: Object) -> None:
        """Creates an object."""
        create(self.api, namespace, body)

    def refusal(self, namespace: str, body: Object) -> str:
        """The error of a creation, which must fail."""
        return refusal(self.api.create, path_of(namespace, body), body)


def is_in_effect(api: Api) -> bool:
    """Whether the policy is, which takes a moment."""
    try:
        api.create("/api/v1/namespaces/default/secrets?dryRun=All", secret("probe"))
    except ApiError as error:
        return NOT_OF_JOB in error.message
    return False


def path_of(namespace: str, body: Object) -> str:
    """The path of the collection of an object."""
    version, kind = body["apiVersion"], body["kind"].lower()
    plural = f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"
    return f"/{'apis' if '/' in version else 'api'}/{version}/namespaces/{namespace}/{plural}"


def create(api: Api, namespace: str, body: Object) -> Object:
    """The new object."""
    return api.create(path_of(namespace, body), body)


def refusal(request: Callable[..., Any], *arguments: Any) -> str:
    """The error of a request, which must fail."""
    with pytest.raises(ApiError) as error:
        request(*arguments)
    return str(error.value)


# The base as it is: tests/integration.
INSTALLATIONS: dict[str, Object | str] = {
    "base with a prefix in another namespace": {"namespace": "ml-system", "namePrefix": "ml-"},
    "chart in another namespace": "ml-system",
}


@pytest.fixture(scope="module", params=INSTALLATIONS, ids=str)
def installation(
    request: pytest.FixtureRequest, api: Api, helm4: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Each way to install the operator, removed afterwards."""
    wanted = INSTALLATIONS[request.param]
    if isinstance(wanted, str):
        options = ("--namespace", wanted, "--set", "crds.enabled=false,rbac.aggregateClusterRoles=false")
        text, installed = helm4("template", "horovodjob-operator", str(CHART), *options), wanted
        namespaces: list[Object] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": wanted}}]
    else:
        directory = tmp_path_factory.mktemp("overlay")
        kustomization = {"resources": [os.path.relpath(BASE, directory)], **wanted}
        (directory / "kustomization.yaml").write_text(json.dumps(kustomization))
        text, installed, namespaces = render(api, directory), wanted.get("namespace", "horovodjob-system"), []
    # The definition remains, with the policy in its file, because the other tests need both.
    objects = namespaces + [
        each
        for each in yaml.safe_load_all(text)
        if each
        and each["kind"] not in ("Deployment", "CustomResourceDefinition")
        and "frozen-spec" not in each["metadata"]["name"]
        and "helm.sh/hook" not in each["metadata"].get("annotations", {})
    ]
    rendered = yaml.safe_dump_all(objects)
    done = api.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=rendered)
    assert done.returncode == 0, done.stderr
    account = next(each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount")
    stolen = account_kubeconfig(api, tmp_path_factory.mktemp("stolen") / "kubeconfig", installed, account)
    made = Installation(Api(stolen), installed)
    try:
        wait_for("the policy", lambda: is_in_effect(made.api))
        yield made
    finally:
        assert api.kubectl("delete", "--wait", "-f", "-", stdin=rendered).returncode == 0


def render(api: Api, directory: Path) -> str:
    """The output of `kubectl kustomize`."""
    done = api.kubectl("kustomize", str(directory))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def team(api: Api) -> str:
    """A namespace in which jobs run."""
    api.kubectl("create", "namespace", TEAM)
    return TEAM


@pytest.fixture
def job(api: Api, team: str) -> Iterator[HorovodJob]:
    """A job that exists, with a Service."""
    driver = submit(api, team, "train", network={"service": True}, image="trainer:1")
    yield HorovodJob.model_validate(driver.get())
    driver.delete()


def secret(name: str, **metadata: Any) -> Object:
    """A Secret that could belong to the operator, except for its owner."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}, "immutable": True}


def with_owners(body: Object, *owners: Object) -> Object:
    """The object with other owners."""
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [*owners]}}


def objects_of(job: HorovodJob) -> list[Object]:
    """What the operator creates for the job."""
    pods = [launcher_pod(job, 1, "", ""), worker_pod(job, 0, 1, "")]
    keys = {"id_ed25519": "key"}
    return [
        keys_secret(job, keys),
        scripts_secret(job.metadata.namespace),
        network_policy(job),
        service(job),
        *pods,
    ]


def test_the_operator_creates_the_objects_of_a_job_in_its_namespace_only(
    installation: Installation, job: HorovodJob, team: str, api: Api
) -> None:
    for body in objects_of(job):
        installation.api.create(f"{path_of(body['metadata']['namespace'], body)}?dryRun=All", body)
    for namespace in ("kube-system", "kube-public", "kube-node-lease", installation.namespace):
        for body in objects_of(job):
            there = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
            assert "a namespace of Kubernetes or of the operator" in installation.refusal(namespace, there)
    assert "only when it is finished" in refusal(installation.api.delete, f"{JOBS.format(team)}/train")
    api.kubectl("-n", team, "create", "rolebinding", "author", "--clusterrole=edit", "--user=author")
    author = Api(api.kubeconfig, user="author")
    for name in [each["metadata"]["name"] for each in objects_of(job)[:2]]:
        assert "is reserved for a Secret of the operator" in refusal(create, author, team, secret(name))
    create(author, team, secret("own"))
    author.delete(f"{path_of(team, secret('own'))}/own")
    own = restricted_pod("own")
    labelled = {"metadata": {"name": "own", "labels": {"horovodjob.dev/job-uid": job.metadata.uid}}}
    create(author, team, own)
    assert "only the operator of HorovodJobs" in refusal(create, author, team, own | labelled)
    path = f"{path_of(team, own)}/own"
    assert "only the operator" in refusal(author.patch, path, labelled)
    api.patch(path, labelled)  # cluster-admin
    unlabelled = {"metadata": {"labels": {"horovodjob.dev/job-uid": None}}}
    assert "only the operator" in refusal(author.patch, path, unlabelled)
    author.patch(path, {"metadata": {"annotations": {"a": "b"}}})
    author.delete(f"{path}?gracePeriodSeconds=0")


# What the policy says of an object does not depend on the names of the installation.
one_installation = pytest.mark.parametrize("installation", ["chart in another namespace"], indirect=True)


@one_installation
def test_nothing_keeps_an_object_of_a_job_from_the_collector(
    installation: Installation, job: HorovodJob, team: str, api: Api
) -> None:
    kept = api.create(f"/api/v1/namespaces/{team}/configmaps", {"metadata": {"generateName": "owner-"}})["metadata"]
    real = {"apiVersion": "v1", "kind": "ConfigMap", "name": kept["name"], "uid": kept["uid"]}
    own = network_policy(job)["metadata"]["ownerReferences"][0]
    for body in objects_of(job):
        for owners in ((FALSE_OWNER, real), (own, real), (real, FALSE_OWNER), ({**real, "controller": True},)):
            assert NOT_OF_JOB in installation.refusal(team, with_owners(body, *owners)), (body["kind"], owners)
        finalized = {**body, "metadata": {**body["metadata"], "finalizers": ["attacker.test/keep"]}}
        assert "may not add finalizers" in installation.refusal(team, finalized), body["kind"]
    pod = launcher_pod(job, 1, "", "")
    pod["spec"]["terminationGracePeriodSeconds"] = 10**6
    assert "terminationGracePeriodSeconds of at most 3600" in installation.refusal(team, pod)
    labels = {"horovodjob.dev/job-uid": FALSE_OWNER["uid"]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "no"}}
    for body in (
        restricted_pod("no-launcher") | {"metadata": {"name": "no-launcher", "labels": labels}},
        policy | {"spec": {"podSelector": {"matchLabels": labels}}},
        secret(f"horovodjob-keys-{FALSE_OWNER['uid']}") | {"type": "Opaque"},
    ):
        installation.create(team, with_owners(body, FALSE_OWNER))

    def left() -> str:
        kinds = "pods/no-launcher", "networkpolicies/no", f"secrets/horovodjob-keys-{FALSE_OWNER['uid']}"
        return api.kubectl("-n", team, "get", "--ignore-not-found", "-o", "name", *kinds).stdout

    wait_for("the garbage collector", lambda: not left())


@one_installation
def test_an_object_concerns_only_its_job(installation: Installation, job: HorovodJob, team: str) -> None:
    policy, names, pod = network_policy(job), service(job), launcher_pod(job, 1, "", "")
    other = {"horovodjob.dev/job-uid": FALSE_OWNER["uid"]}
    for selector in ({}, {"matchLabels": {"app": "database"}}, {"matchLabels": other}):
        changed = {**policy, "spec": {**policy["spec"], "podSelector": selector}}
        assert "select only such pods" in installation.refusal(team, changed)
    without = {key: value for key, value in names["spec"].items() if key != "selector"}
    for spec in (without, {**names["spec"], "selector": {"app": "database"}}, {**names["spec"], "selector": other}):
        assert "select only such pods" in installation.refusal(team, {**names, "spec": spec})
    for change in (
        {"externalIPs": ["10.0.0.1"]},
        {"clusterIP": None},
        {"clusterIP": None, "type": "NodePort"},
        {"clusterIP": None, "type": "ExternalName", "externalName": "attacker.test"},
    ):
        changed = {**names, "spec": {**names["spec"], **change}}
        assert "only headless Services" in installation.refusal(team, changed), change
    for labels in ({}, other):
        changed = {**pod, "metadata": {**pod["metadata"], "labels": labels}}
        assert "with the label horovodjob.dev/job-uid of their job" in installation.refusal(team, changed)
    for body in objects_of(job):
        named = {**body, "metadata": {**body["metadata"], "name": "database"}}
        assert "not that of its job" in (refusal := installation.refusal(team, named)) or NOT_OF_JOB in refusal
