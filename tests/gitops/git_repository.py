"""A Git repository of jobs: the documented one, or the jobs of one team."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import yaml

from support.api_client import ROOT, binary
from support.gitops.health import GITOPS
from support.tutorial import page

IDENTITY = ("-c", "user.name=Team", "-c", "user.email=team@example.com")


class Repository:
    """A work tree whose branch `main` an engine applies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """Standard output of a command of Git."""
        command = ["git", "-C", str(self.directory), *IDENTITY, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    @property
    def revision(self) -> str:
        """The commit that the engine is to apply."""
        return self.git("rev-parse", "HEAD")

    def commit(self, message: str = "change") -> str:
        """Commits all files."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", f"--message={message}")
        return self.revision

    def edit(self, file: str, old: str, new: str) -> None:
        """Replaces a text that the file has."""
        path = self.directory / file
        content = path.read_text()
        assert old in content, f"{file} has no {old!r}"
        path.write_text(content.replace(old, new))

    def archive(self, file: Path) -> None:
        """Writes the committed files as a compressed archive."""
        self.git("archive", "--format=tar.gz", f"--output={file}", "HEAD")


def documented_repository(directory: Path, registry: str = "registry.example.com") -> Repository:
    """The repository that the first steps of docs/gitops.md make and build."""
    repository = Repository(directory)
    copy, show, *_ = page.blocks(ROOT / "docs" / "gitops.md", "sh", "A repository, step by step")
    path = f"{Path(binary('kubectl')).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "IMAGE_REGISTRY": registry}
    page.run_script(copy.replace("../training", str(directory)), ROOT, environment)
    shown = page.run_script(show, directory, environment)
    assert {"Application", "HorovodJob"} <= {one["kind"] for one in yaml.safe_load_all(shown)}
    return repository


def single_job_repository(
    directory: Path, namespace: str, *, annotations: dict[str, str], is_hashed: bool
) -> Repository:
    """A repository with one job, which has these annotations, and a hash in its name if that is wanted."""
    repository = Repository(directory)
    (directory / "jobs").mkdir()
    metadata = {"name": "train", "annotations": annotations}
    spec = {"image": "trainer:1", "command": ["train"], "worker": {"replicas": 1, "gpus": 0}}
    job = {"apiVersion": "horovodjob.dev/v1beta1", "kind": "HorovodJob", "metadata": metadata, "spec": spec}
    kustomization: dict[str, object] = {"namespace": namespace, "resources": ["job.yaml", "namespace.yaml"]}
    if is_hashed:
        generator = {"name": "train", "files": ["job.yaml"]}
        kustomization["configMapGenerator"] = [{**generator, "options": {"annotations": annotations}}]
        kustomization["configurations"] = ["names.yaml"]
        shutil.copy(GITOPS / "example" / "run" / "names.yaml", directory / "jobs")
    files = {"job": job, "kustomization": kustomization, "namespace": namespace_object(namespace)}
    for name, content in files.items():
        (directory / "jobs" / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return repository


def namespace_object(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def team_repository(directory: Path, namespace: str) -> Repository:
    """The jobs of the example in a namespace of their own."""
    repository = Repository(directory)
    for folder in ("jobs", "run"):
        shutil.copytree(GITOPS / "example" / folder, directory / folder)
    shutil.copy(GITOPS / "example" / "delete-earlier-runs.sh", directory)
    repository.edit("jobs/kustomization.yaml", "namespace: training", f"namespace: {namespace}")
    repository.edit("jobs/namespace.yaml", "name: training", f"name: {namespace}")
    return repository
