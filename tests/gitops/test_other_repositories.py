"""Argo CD and Flux with repositories that are not the documented one."""

from __future__ import annotations

import itertools
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gitops.argocd import APPLICATIONS, ArgoCD, ArgoDelivery
from gitops.conftest import Cluster
from gitops.documented_output import PAGE
from gitops.engine import HEALTHY, PROGRESSING, runs
from gitops.flux import KUSTOMIZATIONS, Flux, FluxDelivery
from gitops.git_repository import Repository, namespace_object
from gitops.test_engines import job_of, only
from support.api_client import JOBS, ROOT, Object, wait_for
from support.gitops.health import FLUX_RESULTS
from support.job_driver import Job

NUMBERS = itertools.count(1)
CHART_VALUES: Object = {
    "nameSuffixHash": True,
    "image": "trainer:1",
    "command": ["train"],
    "worker": {"replicas": 1, "gpus": 0},
    "labels": {"team": "vision"},
}
HOOKS = "/apis/batch/v1/namespaces/{}/jobs"


def new_repository(directory: Path, **files: Any) -> Repository:
    """A repository with these YAML files, by paths with `__` in the place of `/`."""
    repository = Repository(directory)
    for path, content in files.items():
        write(repository, f"{path.replace('__', '/')}.yaml", content)
    return repository


def write(repository: Repository, path: str, content: Any) -> None:
    """Writes a YAML file, of one object or several."""
    file = repository.directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(content) if isinstance(content, list) else yaml.safe_dump(content))


def training(namespace: str, name: str = "train", **metadata: Any) -> Object:
    spec = {"image": "trainer:1", "command": ["train"], "worker": {"replicas": 1, "gpus": 0}}
    return {
        "apiVersion": "horovodjob.dev/v1beta1",
        "kind": "HorovodJob",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {**spec, "runPolicy": {"backoffLimit": 0}},
    }


def application(name: str, repository: Repository, path: str, namespace: str, **source: Any) -> Object:
    """An Application that is synchronised and heals itself."""
    spec = {
        "project": "default",
        "destination": {"server": "https://kubernetes.default.svc", "namespace": namespace},
        "source": {"repoURL": f"file://{repository.directory}", "targetRevision": "main", "path": path, **source},
        "syncPolicy": {
            "automated": {"prune": True, "selfHeal": True},
            "syncOptions": ["ServerSideApply=true", "CreateNamespace=true"],
        },
    }
    metadata = {"name": name, "namespace": "argocd", "finalizers": ["resources-finalizer.argocd.argoproj.io"]}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata, "spec": spec}


def labels(job: Job) -> Object:
    found: Object = job.get()["metadata"].get("labels", {})
    return found


@only(ArgoCD)
def test_argo_cd_heals_a_job_of_the_chart_and_leaves_what_git_does_not_set(cluster: Cluster, tmp_path: Path) -> None:
    namespace = f"heal-{next(NUMBERS)}"
    repository = new_repository(tmp_path / "repository")
    shutil.copytree(ROOT / "charts" / "horovodjob", repository.directory / "chart")
    write(repository, "chart/team.yaml", CHART_VALUES)
    repository.commit()
    helm = {"releaseName": "train", "valueFiles": ["team.yaml"]}
    cluster.engine.apply(application(namespace, repository, "chart", namespace, helm=helm))
    delivery = ArgoDelivery(cluster.api, repository, namespace)
    job = job_of(delivery, "train").advance_to("Running")
    cluster.api.patch(
        job.path, {"metadata": {"labels": {"team": "robotics"}}, "spec": {"runPolicy": {"suspend": True}}}
    )
    wait_for("the label of Git", lambda: labels(job)["team"] == "vision")
    job.wait("Suspended")
    job.suspend(False)
    job.advance_to("Running")
    write(repository, "chart/team.yaml", {**CHART_VALUES, "image": "trainer:2"})
    delivery.deploy()
    assert job_of(delivery, "train", 2).get()["spec"]["image"] == "trainer:2"
    assert job.phase == "Running"
    later = job_of(delivery, "train", 2)
    later.delete()
    wait_for("the deleted job to be created again", lambda: len(runs(cluster.api, namespace)) == 2)
    assert later.uid not in [one.uid for one in runs(cluster.api, namespace)]
    cluster.api.delete(f"{APPLICATIONS}/{namespace}")
    wait_for("the end of the Application", lambda: not cluster.api.find(f"{APPLICATIONS}/{namespace}"))
    assert job.phase == "Running", "Delete=false"


@only(ArgoCD)
def test_an_application_of_applications_leaves_the_jobs_of_one_that_it_prunes(cluster: Cluster, tmp_path: Path) -> None:
    first, second = (f"apps-{next(NUMBERS)}" for _ in range(2))
    kept: Object = {"annotations": {"argocd.argoproj.io/sync-options": "Prune=false,Delete=false"}}
    teams = {first: training(first, **kept), second: training(second, **kept)}
    repository = new_repository(tmp_path / "repository", **{f"teams__{team}__job": job for team, job in teams.items()})
    for team in teams:
        write(repository, f"apps/{team}.yaml", application(team, repository, f"teams/{team}", team))
    repository.commit()
    cluster.engine.apply(application("root", repository, "apps", "argocd"))
    root = ArgoDelivery(cluster.api, repository, "root")
    wait_for("both Applications", lambda: all(cluster.api.find(f"{APPLICATIONS}/{team}") for team in teams))
    jobs = [job_of(ArgoDelivery(cluster.api, repository, team), "train").advance_to("Running") for team in teams]
    (repository.directory / "apps" / f"{first}.yaml").unlink()
    root.deploy()
    wait_for("the end of the pruned Application", lambda: not cluster.api.find(f"{APPLICATIONS}/{first}"))
    assert [job.phase for job in jobs] == ["Running", "Running"]
    jobs[1].end("launcher", 0)
    jobs[1].wait("Succeeded")
    ArgoDelivery(cluster.api, repository, second).wait_health(HEALTHY)


@only(ArgoCD)
def test_a_hook_reads_the_result_of_a_job_that_has_succeeded(cluster: Cluster, tmp_path: Path) -> None:
    good, bad = (f"hook-{next(NUMBERS)}" for _ in range(2))
    repository = new_repository(tmp_path / "repository")
    for team in (good, bad):
        hooks = [hook(team, "report", "PostSync"), hook(team, "alarm", "SyncFail")]
        write(repository, f"{team}/all.yaml", [training(team), *hooks])
    repository.commit()
    for team in (good, bad):
        cluster.engine.apply(application(team, repository, team, team))
    deliveries = {team: ArgoDelivery(cluster.api, repository, team) for team in (good, bad)}
    jobs = {team: job_of(delivery, "train").advance_to("Running") for team, delivery in deliveries.items()}
    for delivery in deliveries.values():
        delivery.wait_message("waiting for healthy state of horovodjob.dev/HorovodJob/train")
        assert cluster.api.get(HOOKS.format(delivery.name))["items"] == [], "the result is not there yet"
    jobs[good].end("launcher", 0)
    jobs[bad].end("launcher", 3)
    for team, name in ((good, "report"), (bad, "alarm")):
        (found,) = wait_for(f"the hook {name}", partial(cluster.api.items, HOOKS.format(team)))
        assert found["metadata"]["name"] == name
        command = found["spec"]["template"]["spec"]["containers"][0]["command"]
        result = cluster.api.kubectl(*command[1:]).stdout
        assert result == ("Succeeded" if team == good else "Failed")


def hook(namespace: str, name: str, phase: str) -> Object:
    """A Job that reads the phase of the training."""
    command = ["kubectl", f"--namespace={namespace}", "get", "horovodjob", "train", "--output=jsonpath={.status.phase}"]
    container = {"name": name, "image": "kubectl:1", "command": command}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    metadata = {"name": name, "namespace": namespace, "annotations": {"argocd.argoproj.io/hook": phase}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def kustomization(name: str, path: str, source: str, **spec: Any) -> Object:
    reference = {"kind": "GitRepository", "name": source}
    metadata = {"name": name, "namespace": "flux-system"}
    kind = {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": metadata}
    return {**kind, "spec": {"interval": "10m", "prune": True, "path": path, "sourceRef": reference, **spec}}


def flux_delivery(cluster: Cluster, repository: Repository, name: str, source: str) -> FluxDelivery:
    assert isinstance(cluster.engine, Flux)
    return FluxDelivery(cluster.api, repository, name, source, cluster.engine)


def start_flux(cluster: Cluster, repository: Repository, name: str, *objects: Object) -> None:
    """Adds the repository as a source, and these objects."""
    assert isinstance(cluster.engine, Flux)
    repository.commit()
    cluster.engine.add_source(repository, name)
    cluster.engine.apply(*objects)


@only(Flux)
def test_a_kustomization_depends_on_the_result_of_another_and_corrects_drift(cluster: Cluster, tmp_path: Path) -> None:
    name = f"depends-{next(NUMBERS)}"
    train = training(name, labels={"team": "vision"})
    files = {"train__all": [namespace_object(name), train], "evaluate__job": training(name, "evaluate")}
    repository = new_repository(tmp_path / "repository", **files)
    checks = yaml.safe_load(FLUX_RESULTS.read_text())["spec"]["healthCheckExprs"]
    waits = {"wait": True, "timeout": "12h", "healthCheckExprs": checks}
    first = kustomization(f"{name}-train", "train", name, **waits)
    second = kustomization(f"{name}-evaluate", "evaluate", name, dependsOn=[{"name": f"{name}-train"}])
    start_flux(cluster, repository, name, first, second)
    delivery = flux_delivery(cluster, repository, name, name)
    job = job_of(delivery, "train").advance_to("Running")
    wait_for("the second one to wait", lambda: "depend" in str(cluster.api.get(f"{KUSTOMIZATIONS}/{name}-evaluate")))
    waiting = flux_delivery(cluster, repository, f"{name}-train", name)
    assert waiting.health() == PROGRESSING
    assert [one.name for one in runs(cluster.api, name)] == ["train"]
    job.end("launcher", 0)
    job.wait("Succeeded")
    evaluation = job_of(delivery, "evaluate")
    evaluation.wait("Queued")

    cluster.api.patch(job.path, {"metadata": {"labels": {"team": "robotics"}}})
    cluster.api.patch(evaluation.path, {"spec": {"runPolicy": {"suspend": True}}})
    waiting.reconcile()
    wait_for("the label of Git", lambda: labels(job)["team"] == "vision")
    flux_delivery(cluster, repository, f"{name}-evaluate", name).reconcile()
    evaluation.wait("Suspended")
    job.delete()
    waiting.reconcile()
    wait_for("the deleted job to be created again", lambda: job_of(delivery, "train").uid != job.uid)


def release(namespace: str, source: str, values: Object, **spec: Any) -> Object:
    """A HelmRelease of the job's chart in Git."""
    reference = {"kind": "GitRepository", "name": source, "namespace": "flux-system"}
    chart = {"spec": {"chart": "chart", "sourceRef": reference, "reconcileStrategy": "Revision", "interval": "10m"}}
    metadata = {"name": "train", "namespace": namespace}
    drift = {"driftDetection": {"mode": "enabled"}, "install": {"disableWait": True}, "upgrade": {"disableWait": True}}
    kind = {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata}
    return {**kind, "spec": {"interval": "10m", "chart": chart, "values": values, **drift, **spec}}


@only(Flux)
def test_a_helm_release_starts_runs_detects_drift_and_ends_without_the_loss_of_a_job(
    cluster: Cluster, tmp_path: Path
) -> None:
    name = f"release-{next(NUMBERS)}"
    repository = new_repository(tmp_path / "repository", deploy__namespace=namespace_object(name))
    shutil.copytree(ROOT / "charts" / "horovodjob", repository.directory / "chart")
    write(repository, "deploy/release.yaml", release(name, name, CHART_VALUES))
    start_flux(cluster, repository, name, kustomization(name, "deploy", name))
    delivery = flux_delivery(cluster, repository, name, name)
    path = f"/apis/helm.toolkit.fluxcd.io/v2/namespaces/{name}/helmreleases/train"
    job = job_of(delivery, "train").advance_to("Running")

    def ready(status: str, words: str = "") -> None:
        def is_ready() -> bool:
            found = cluster.api.get(path)
            conditions = found.get("status", {}).get("conditions", ())
            observed = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            said = [one for one in conditions if one["type"] == "Ready" and one["status"] == status]
            return (observed or status == "False") and any(words in one["message"] for one in said)

        wait_for(f"the release with Ready={status} {words}", is_ready)

    ready("True")
    cluster.api.patch(
        job.path, {"metadata": {"labels": {"team": "robotics"}}, "spec": {"runPolicy": {"suspend": True}}}
    )
    assert isinstance(cluster.engine, Flux)
    cluster.engine.request(path)
    wait_for("the label of the release", lambda: labels(job)["team"] == "vision")
    job.wait("Suspended")
    job.suspend(False)
    job.advance_to("Running")

    def deploy(values: Object) -> None:
        write(repository, "deploy/release.yaml", release(name, name, values))
        delivery.deploy()

    deploy({**CHART_VALUES, "worker": {"replicas": 0, "gpus": 0}})
    ready("False", "replicas")
    deploy({**CHART_VALUES, "image": "trainer:2"})
    assert job_of(delivery, "train", 2).get()["spec"]["image"] == "trainer:2"
    ready("True")
    assert job.phase == "Running"
    (repository.directory / "deploy" / "release.yaml").unlink()
    delivery.deploy()
    wait_for("the end of the release", lambda: not cluster.api.find(path))
    assert job.uid in [one.uid for one in runs(cluster.api, name)]
    assert len(cluster.api.get(JOBS.format(name))["items"]) == 2
    assert job.phase == "Running"


REMEDIATION = {"retries": 1, "strategy": "uninstall"}
# Settings of `spec.upgrade` by their words on the page, for a job whose name has no hash.
UPGRADES: dict[str, Object] = {
    "fixed name": {},
    "`upgrade.force`": {"force": True},
    "`upgrade.remediation.strategy: uninstall`": {"remediation": REMEDIATION},
}


@only(Flux)
def test_a_helm_release_of_a_job_with_a_fixed_name_leaves_it_running(cluster: Cluster, tmp_path: Path) -> None:
    source = f"upgrades-{next(NUMBERS)}"
    repository = new_repository(tmp_path / "repository")
    shutil.copytree(ROOT / "charts" / "horovodjob", repository.directory / "chart")
    plain = {**CHART_VALUES, "nameSuffixHash": False}
    changes: dict[str, Object] = {"changed": {"image": "trainer:2"}, "invalid": {"worker": {"replicas": 0}}}
    releases = {
        f"{source}-{number}-{change}": (setting, values)
        for number, setting in enumerate(UPGRADES.values())
        for change, values in changes.items()
    }

    def deploy(changed: bool) -> None:
        for name, (setting, values) in releases.items():
            upgrade = {"upgrade": {"disableWait": True, **setting}}
            objects = [
                namespace_object(name),
                release(name, source, {**plain, **values} if changed else plain, **upgrade),
            ]
            write(repository, f"deploy/{name}.yaml", objects)

    deploy(changed=False)
    start_flux(cluster, repository, source, kustomization(source, "deploy", source))
    delivery = flux_delivery(cluster, repository, source, source)
    jobs = {}
    for name in releases:
        wait_for(f"the job of {name}", partial(runs, cluster.api, name))
        jobs[name] = runs(cluster.api, name)[0].advance_to("Running")
    deploy(changed=True)
    delivery.deploy()
    for name in releases:
        words = "is not suspended (Running)" if name.endswith("changed") else "replicas"
        path = f"/apis/helm.toolkit.fluxcd.io/v2/namespaces/{name}/helmreleases/train"
        wait_for(f"the failure of {name}", partial(has_failed, cluster, path, words))
    assert {name: [(one.uid, one.phase) for one in runs(cluster.api, name)] for name in releases} == {
        name: [(job.uid, "Running")] for name, job in jobs.items()
    }


def has_failed(cluster: Cluster, path: str, words: str) -> bool:
    """Whether helm-controller has failed twice with these words: it tries again without an end."""
    status = cluster.api.get(path).get("status", {})
    return int(status.get("failures", 0)) >= 2 and words in str(status)


def test_the_page_has_a_row_for_each_setting_of_a_helm_release() -> None:
    rows = [f"| HelmRelease | {words} | runs on | runs on |" for words in UPGRADES]
    rows.insert(0, "| HelmRelease | `nameSuffixHash` (the example) | runs on, beside the new one | runs on |")
    assert [row for row in PAGE.read_text().splitlines() if row.startswith("| HelmRelease | ")] == rows
