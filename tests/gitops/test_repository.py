"""The example of a repository with a cluster folder and jobs, as kustomize builds it for Argo CD and Flux."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from gitops.git_repository import documented_repository
from horovodjob_release.version import project_version
from support.api_client import ROOT, binary
from support.gitops.health import GITOPS, Object
from support.helm import operator_images

EXAMPLE = GITOPS / "example"
JOBS = EXAMPLE / "jobs"
Objects = dict[tuple[str, str], Object]
HOROVODJOB = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob"}
WAVE = "argocd.argoproj.io/sync-wave"
REGISTRY, VERSION = "registry.example.com/team", project_version(ROOT)


def objects(*command: str, values: str = "") -> Objects:
    """The rendered objects of a command, by kind and name."""
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout) if one}


def built(folder: Path) -> Objects:
    """The objects of a kustomization."""
    return objects(binary("kubectl"), "kustomize", str(folder))


@pytest.fixture(scope="module")
def jobs() -> Objects:
    return built(JOBS)


def without_hash(objects: Objects) -> set[tuple[str, str]]:
    """Kinds and names of objects; the name of the registry is part of a hash."""
    return {(kind, re.sub(r"^(digits|cifar)-.*", r"\1", name)) for kind, name in objects}


def hashed(objects: Objects, job: str) -> str:
    """The name of the job with the hash of its ConfigMap."""
    (name,) = (name for kind, name in objects if kind == "HorovodJob" and name.startswith(f"{job}-"))
    return name


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository that the commands of docs/gitops.md make for a registry."""
    return documented_repository(tmp_path_factory.mktemp("documented") / "training", REGISTRY).directory


def test_the_repository_of_the_documentation_can_be_built(repository: Path) -> None:
    for folder in ("clusters/argocd", "operator", "jobs"):
        assert without_hash(built(repository / folder)) == without_hash(built(EXAMPLE / folder))
    assert {path.name for path in (repository / "clusters" / "flux").iterdir()} == {"operator.yaml", "jobs.yaml"}
    for tool, kind in (("argocd", "Application"), ("flux", "Kustomization")):
        cluster = built(EXAMPLE / "clusters" / tool)
        assert cluster.keys() == {(kind, "horovodjob-operator"), (kind, "training-jobs")}
        spec = cluster[kind, "training-jobs"]["spec"]
        assert (EXAMPLE / (spec.get("path") or spec["source"]["path"])).resolve() == JOBS


def test_the_repository_has_only_images_and_charts_that_the_pages_push(repository: Path) -> None:
    argocd = built(repository / "clusters" / "argocd")["Application", "horovodjob-operator"]["spec"]["source"]
    flux = built(repository / "operator")
    release = flux["HelmRelease", "horovodjob-operator"]["spec"]
    charts = {f"{argocd['repoURL']}/{argocd['chart']}", flux["OCIRepository", "horovodjob-operator"]["spec"]["url"]}
    jobs = built(repository / "jobs")
    images = {one["spec"]["image"] for (kind, _), one in jobs.items() if kind == "HorovodJob"}
    for values in (argocd["helm"]["valuesObject"], release["values"]):
        operator = images_of_operator(values)
        assert operator == {f"{REGISTRY}/horovodjob/{role}:{VERSION}" for role in ("operator", "trainer")}
        images |= operator
    assert argocd["targetRevision"] == VERSION
    assert {chart.removeprefix("oci://") for chart in charts} <= pushed("helm push")
    assert images <= pushed("docker push")


def images_of_operator(values: Object) -> set[str]:
    """The images of the operator's chart with these values, that of the job of `helm test` included."""
    chart = str(ROOT / "charts" / "horovodjob-operator")
    command = (binary("helm4"), "template", "horovodjob-operator", chart, "--values=-")
    rendered = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True).stdout
    return operator_images(rendered)


def pushed(command: str) -> set[str]:
    """The images or charts that the pages push to the registry."""
    text = "".join((ROOT / "docs" / page).read_text() for page in ("quickstart.md", "install.md", "gpu-image.md"))
    targets = re.findall(rf"{command} (.*)", text.replace("$IMAGE_REGISTRY", REGISTRY))
    if command == "docker push":
        return set(targets)
    return {
        f"{target.removeprefix('oci://')}/{Path(package).name.removesuffix(f'-{VERSION}.tgz')}"
        for package, target in map(str.split, targets)
    }


def test_flux_installs_a_release_of_the_chart_of_a_job() -> None:
    applied = built(GITOPS / "flux" / "job")
    ((name, release),) = ((name, one["spec"]) for (kind, name), one in applied.items() if kind == "HelmRelease")
    assert release["chartRef"] == {"kind": "OCIRepository", "name": "horovodjob"}
    assert applied["OCIRepository", "horovodjob"]["spec"]["url"].endswith("/charts/horovodjob")
    chart, values = str(ROOT / "charts" / "horovodjob"), yaml.safe_dump(release["values"])
    rendered = objects(binary("helm4"), "template", name, chart, "--values=-", values=values)
    assert any(kind == "HorovodJob" and made.startswith(name) for kind, made in rendered)


def test_the_name_of_a_job_has_the_hash_of_its_files_which_it_mounts(jobs: Objects) -> None:
    for job in ("digits", "cifar"):
        name = hashed(jobs, job)
        files = jobs["ConfigMap", name]["data"]
        assert files == {file: (JOBS / job / file).read_text() for file in files}
        assert files.keys() == {path.name for path in (JOBS / job).iterdir()} - {"kustomization.yaml"}
        for kind in ("HorovodJob", "ConfigMap"):
            annotations = jobs[kind, name]["metadata"]["annotations"]
            assert annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
            assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
            assert annotations["argocd.argoproj.io/compare-options"] == "IgnoreExtraneous"
    name = hashed(jobs, "digits")
    assert {"name": "run", "configMap": {"name": name}} in jobs["HorovodJob", name]["spec"]["volumes"]


@pytest.mark.parametrize(
    ("file", "old", "new", "is_another"),
    [
        ("job.yaml", "replicas: 2", "replicas: 3", True),
        ("job.yaml", "kind: HorovodJob", "kind: HorovodJob # again", True),
        ("train.sh", "exec", "time", True),
        ("kustomization.yaml", "resources:", "commonLabels: {kueue.x-k8s.io/queue-name: gpus}\nresources:", False),
        ("kustomization.yaml", "resources:", "patches: [{path: suspend.yaml}]\nresources:", False),
    ],
)
def test_a_change_of_the_files_of_a_run_creates_another_job(
    file: str, old: str, new: str, is_another: bool, jobs: Objects, tmp_path: Path
) -> None:
    for folder in ("jobs", "run"):
        shutil.copytree(EXAMPLE / folder, tmp_path / folder)
    files = tmp_path / "jobs" / "digits"
    suspended = {**HOROVODJOB, "metadata": {"name": "digits"}, "spec": {"runPolicy": {"suspend": True}}}
    (files / "suspend.yaml").write_text(yaml.safe_dump(suspended))
    (files / file).write_text((files / file).read_text().replace(old, new))
    assert (hashed(built(tmp_path / "jobs"), "digits") != hashed(jobs, "digits")) is is_another


def test_nothing_that_is_shipped_replaces_jobs() -> None:
    """Flux and Argo CD delete a running job with these settings."""
    shipped = [path for folder in ("charts", "manifests") for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = {path: path.read_text(errors="replace") for path in shipped}
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    texts |= {path: "".join(re.findall(r"```.*?```", path.read_text(), re.DOTALL)) for path in pages}
    words = re.compile(
        r"kustomize\.toolkit\.fluxcd\.io/force|(Force|Replace)=true|^\s*force: true|--force(?![-\w])", re.M
    )
    assert [str(path) for path, text in texts.items() if words.search(text)] == []


def test_volumes_are_applied_before_the_jobs_and_never_pruned(jobs: Objects) -> None:
    claim = jobs["PersistentVolumeClaim", "data"]["metadata"]["annotations"]
    assert claim["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
    assert claim["kustomize.toolkit.fluxcd.io/prune"] == "disabled"
    waves = {key: int(one["metadata"].get("annotations", {}).get(WAVE, 0)) for key, one in jobs.items()}
    digits, cifar = (waves["HorovodJob", hashed(jobs, name)] for name in ("digits", "cifar"))
    assert waves["Namespace", "training"] < waves["PersistentVolumeClaim", "data"] < digits
    assert digits == cifar, "a sync ends before the jobs do"
