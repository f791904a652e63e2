"""Commands of pages that need no node, as a user types them. Where one waits for the operator, the test acts as it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from horovodjob_release.version import project_version
from support.api_client import JOBS, ROOT, Api, binary, wait_for
from support.helm import HELM4
from support.servers import Registry
from support.tutorial import page
from unit.mpijob.test_conversion import MPIJOB

DOCS = ROOT / "docs"


@pytest.fixture
def follow(api: Api, tmp_path: Path) -> Callable[[str], str]:
    """Runs commands in a copy of what a checkout has, with namespaces, and with kubectl, Helm 4 and hvj on PATH."""
    for name in ("charts", "manifests"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in {"kubectl": "kubectl", "helm": HELM4}.items():
        (programs / name).symlink_to(binary(program))
    (programs / "hvj").symlink_to(Path(sys.executable).with_name("hvj"))
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    user = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(api.kubeconfig)}

    def run(script: str) -> str:
        return page.run_script(script, tmp_path, user)

    for name in ("team-a", "training"):
        if not api.find(f"/api/v1/namespaces/{name}"):
            api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return run


def test_operators_of_a_namespace_are_installed_by_its_administrator(follow: Callable[[str], str]) -> None:
    blocks = page.blocks(DOCS / "install.md", "sh", "Values that matter")
    some_namespaces, prepared, installed, reviews = blocks
    follow(some_namespaces)
    follow("helm uninstall horovodjob-operator --namespace team-a")
    try:
        follow(prepared)
        follow(installed)
        follow(reviews)
        found = follow("kubectl --namespace team-a get deployment horovodjob-operator --output name")
        assert found == "deployment.apps/horovodjob-operator\n"
        follow("helm uninstall horovodjob-operator --namespace team-a")
    finally:
        follow("kubectl delete clusterrolebinding team-a-horovodjob-operator --ignore-not-found")
        follow("kubectl delete -k manifests/namespace-admins --ignore-not-found")


def test_the_administrator_of_a_cluster_prepares_namespaces(follow: Callable[[str], str], tmp_path: Path) -> None:
    label, defaults, team = page.blocks(DOCS / "operations.md", "sh", "Settings")
    (nodes,) = page.blocks(DOCS / "operations.md", "sh", "Rights")
    metrics = page.blocks(DOCS / "metrics.md", "sh", "Authorization")[0]
    try:
        for script in (label, defaults, team, nodes, metrics):
            follow(script)
        assert "team-b" in follow("kubectl get namespace team-b --output name")
        assert "teama" in follow("kubectl get namespace team-a --output yaml")
        shutil.rmtree(tmp_path / "team-b")
    finally:
        follow("kubectl delete namespace team-b --ignore-not-found")
        follow("kubectl delete clusterrolebinding team-a-nodes prometheus-horovodjob --ignore-not-found")


def report(api: Api, name: str, **status: object) -> None:
    """Writes the status of a job of the namespace `training`, as the operator does, as soon as the job exists."""
    path = f"{JOBS.format('training')}/{name}"
    job = wait_for(f"the job {name}", lambda: api.find(path))
    now = {"observedGeneration": job["metadata"]["generation"], "startTime": "2026-11-22T12:00:00Z", **status}
    api.patch(f"{path}/status", {"status": now})


def run(api: Api, name: str) -> None:
    """The ranks of a job run."""
    report(api, name, phase="Running", executionState="running", conditions=[])


def succeed(api: Api, name: str, **status: object) -> None:
    """A job ends with success."""
    report(api, name, phase="Succeeded", executionState="succeeded", completionTime="2026-11-22T12:01:00Z", **status)


def test_jobs_are_helm_releases(follow: Callable[[str], str], api: Api, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(page.blocks(DOCS / "helm-jobs.md", "yaml")[0])
    runs, resized, hashed = page.blocks(DOCS / "helm-jobs.md", "sh")
    with ThreadPoolExecutor() as pool:
        printed = pool.submit(follow, runs)
        run(api, "run1")
        report(api, "run2")
        succeed(api, "run1")
        assert printed.result().count("STATUS: deployed") == 2
    follow("helm install run1 charts/horovodjob --namespace training --values values.yaml")
    run(api, "run1")
    follow(resized)
    job = api.get(f"{JOBS.format('training')}/run1")
    assert (job["spec"]["worker"]["replicas"], job["spec"]["runPolicy"]["suspend"]) == (8, False)
    shown = follow(hashed).splitlines()
    assert len([line for line in shown if line.startswith("digits-")]) == 3


def test_a_schedule_is_installed_and_a_run_is_started_by_hand(
    follow: Callable[[str], str], api: Api, tmp_path: Path
) -> None:
    (tmp_path / "values.yaml").write_text(page.blocks(DOCS / "schedules.md", "yaml")[0])
    shutil.copy(ROOT / "manifests" / "schedule" / "job.yaml", tmp_path)
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "train.py").write_text("import keras\n")
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    api.create("/api/v1/namespaces/training/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": claim})
    install, check, script, _, now = page.blocks(DOCS / "schedules.md", "sh", "A schedule")
    assert "nightly" in follow(install)
    follow(check)
    follow(f"cd script\nIMAGE=trainer:1\n{script}")
    assert "job.batch/nightly-test created" in follow(now.splitlines()[0])
    listed, compared = page.blocks(DOCS / "schedules.md", "sh", "The runs together")[0].splitlines()
    follow("kubectl -n training apply -f script/run.yaml")
    history = [{"epoch": 1, "metrics": {"loss": 0.5}, "time": "2026-11-22T12:00:30Z"}]
    succeed(api, "nightly", training={"progress": 1, "percent": "100%", "metrics": {"loss": 0.5}, "history": history})
    assert "nightly" in follow(listed)
    assert "nightly" in follow(compared)
    (ended,) = page.blocks(DOCS / "schedules.md", "sh", "Wait for the end")
    assert follow(ended.replace("digits", "nightly")).endswith("Succeeded")


def test_the_chart_goes_through_a_registry_and_gets_a_dashboard_for_a_viewer(follow: Callable[[str], str]) -> None:
    registry = Registry("127.0.0.1")
    pushed, installed = page.blocks(DOCS / "install.md", "sh", "Charts in a registry")
    login = "helm registry login ${IMAGE_REGISTRY%%/*}\n"
    assert login in pushed
    plain = f"export IMAGE_REGISTRY={registry.address}\n" + pushed.replace(
        login, login.replace("login", "login --plain-http -u any -p any")
    )
    follow(plain.replace("helm push", "helm push --plain-http"))
    try:
        # Nothing runs the pods, for which the command waits.
        script = installed.replace("--wait", "--plain-http --take-ownership --force-conflicts")
        assert "STATUS: deployed" in follow(f"export IMAGE_REGISTRY={registry.address}\n{script}")
        enable, viewer = page.blocks(DOCS / "dashboard.md", "sh", "In the cluster")
        (command,) = (line for line in enable.splitlines() if line.startswith("helm upgrade"))
        follow(command)
        found = follow("kubectl -n horovodjob-system get service horovodjob-operator-dashboard -o name")
        assert found == "service/horovodjob-operator-dashboard\n"
        assert len(follow(viewer).split()[-1]) > 100
    finally:
        follow("helm uninstall horovodjob-operator --namespace horovodjob-system --ignore-not-found")
        follow("kubectl delete rolebinding,serviceaccount anna --ignore-not-found")


def test_the_chart_is_applied_without_a_release(follow: Callable[[str], str]) -> None:
    (rendered,) = page.blocks(DOCS / "install.md", "sh", "Helm without releases")
    follow("kubectl create namespace horovodjob-system --dry-run=client -o yaml | kubectl apply -f -")
    try:
        assert "deployment.apps/horovodjob-operator serverside-applied" in follow(rendered)
    finally:
        without_definition = rendered.replace("--no-hooks", "--no-hooks --set crds.enabled=false")
        follow(without_definition.replace("apply --server-side", "delete --ignore-not-found"))


def test_the_manifests_are_applied_upgraded_and_replaced_by_the_chart(follow: Callable[[str], str], api: Api) -> None:
    applied, with_chart = page.blocks(DOCS / "install.md", "sh", "Without Helm")
    upgraded, back = page.blocks(DOCS / "upgrade.md", "sh", "Without Helm")
    assert applied == upgraded
    image = "horovodjob/operator:" + project_version(ROOT)
    earlier = f"sed 's|{image}|horovodjob/operator:0.0.9|'"
    try:
        follow(f"kubectl kustomize manifests/base | {earlier} | kubectl apply --server-side -f -")
        assert roll_out(follow, api, upgraded).splitlines()[-1].endswith("successfully rolled out")
        assert image_of_operator(api) == image
        follow(back)
        assert image_of_operator(api) == "horovodjob/operator:0.0.9"
        assert "STATUS: deployed" in follow(with_chart)
    finally:
        follow("helm uninstall horovodjob-operator --namespace horovodjob-system --ignore-not-found")
        services, roles = ("progress", "metrics"), ("edit", "view", "nodes", "metrics-reader")
        for kind, names in {"service": services, "clusterrole": roles}.items():
            left = " ".join(f"{kind}/horovodjob-{name}" for name in names)
            follow(f"kubectl --namespace horovodjob-system delete {left} --ignore-not-found")


def roll_out(follow: Callable[[str], str], api: Api, script: str) -> str:
    """The output of commands that wait for pods of the operator, which become ready."""
    pods = "/api/v1/namespaces/horovodjob-system/pods"
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(follow, script)

        def has_ended() -> bool:
            for pod in api.get(pods)["items"]:
                api.patch(f"{pods}/{pod['metadata']['name']}/status", {"status": ready})
            return ended.done()

        wait_for("the end of the commands", has_ended)
        return ended.result()


def image_of_operator(api: Api) -> str:
    """The image of the Deployment."""
    found = api.get("/apis/apps/v1/namespaces/horovodjob-system/deployments/horovodjob-operator")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def test_the_account_of_pull_requests_gets_a_token(follow: Callable[[str], str]) -> None:
    (script,) = page.blocks(DOCS / "gitops.md", "sh", "Check a pull request")
    try:
        assert len(follow(script).split()[-1]) > 100
    finally:
        follow("kubectl delete -f manifests/gitops/pull-requests/account.yaml --ignore-not-found")


def test_an_mpijob_of_the_cluster_is_converted(follow: Callable[[str], str], api: Api) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v2beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "mpijobs", "kind": "MPIJob", "singular": "mpijob"}
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]}
    api.create(definitions, {"metadata": {"name": "mpijobs.kubeflow.org"}, "spec": spec})
    try:
        given = json.dumps({**MPIJOB, "metadata": {"name": "train"}})
        wait_for("the MPIJob", lambda: api.kubectl("apply", "-f", "-", stdin=given).returncode == 0)
        follow(page.blocks(DOCS / "migration-mpijob.md", "sh")[0])
        assert api.get(f"{JOBS.format('default')}/train")["spec"]["worker"]["replicas"] == 2
    finally:
        follow("kubectl delete hvj train --ignore-not-found")
        api.delete(f"{definitions}/mpijobs.kubeflow.org")
