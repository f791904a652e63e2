"""The version is the same everywhere, and the changelog contains it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from horovodjob_release.changelog import HEADING, KINDS, notes, sections
from horovodjob_release.errors import ReleaseError
from horovodjob_release.version import mentions, project_version, set_version
from support.api_client import ROOT
from support.tutorial import page

CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
# These files contain the word in an explanation.
PLACEHOLDERS_EXPLAINED = (".", ":!docs/releases.md", ":!CHANGELOG.md", ":!Makefile", ":!release", ":!tests")


def test_every_copy_of_the_version_equals_that_of_pyproject() -> None:
    version, found = project_version(ROOT), list(mentions(ROOT))
    assert [(str(one.path.relative_to(ROOT)), one.version) for one in found if one.version != version] == []
    files = {str(one.path.relative_to(ROOT)) for one in found}
    assert files >= {
        "pyproject.toml",
        "uv.lock",
        "trainer/pyproject.toml",
        "charts/horovodjob-operator/Chart.yaml",
        "charts/horovodjob/Chart.yaml",
        "manifests/base/kustomization.yaml",
        "docs/quickstart.md",
        "manifests/examples/digits.yaml",
        "manifests/gitops/argocd/operator.yaml",
        "manifests/gitops/flux/operator/release.yaml",
        "manifests/gitops/flux/job/release.yaml",
        "manifests/gitops/example/jobs/digits/job.yaml",
    }


def test_the_page_on_releases_lists_the_files_with_a_placeholder_for_the_project() -> None:
    command = ("git", "grep", "--files-with-matches", "--word-regexp", "OWNER", "--", *PLACEHOLDERS_EXPLAINED)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    table = (ROOT / "docs" / "releases.md").read_text().partition("| file | placeholders |\n")[2].partition("\n\n")[0]
    listed = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert set(done.stdout.split()) == listed


def test_no_file_names_an_image_of_the_project_in_another_version() -> None:
    name = re.compile(r"horovodjob[-/](?:operator|dashboard|hvj|trainer|trainer-gpu|mpi):([\w.-]+)")
    found = {
        f"{path.relative_to(ROOT)}: {image[0]}"
        for folder in ("charts", "manifests", "docs", "README.md")
        for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
        if path.is_file() and "testdata" not in path.parts
        for image in name.finditer(path.read_text(errors="ignore"))
        if image[1] != project_version(ROOT) or "horovodjob-" in image[0]
    }
    assert found == set()


def test_one_command_sets_it_everywhere(tmp_path: Path) -> None:
    for name in {str(one.path.relative_to(ROOT)) for one in mentions(ROOT)}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    count = len(list(mentions(ROOT)))
    shutil.copytree(ROOT / "release", tmp_path / "release", ignore=shutil.ignore_patterns("__pycache__"))
    (script,) = page.blocks(ROOT / "docs" / "releases.md", "sh", "The version")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}  # of what the copy does not have
    printed = page.run_script(script.replace(".venv/bin/python", sys.executable), tmp_path, environment)
    assert printed.startswith(project_version(ROOT))
    assert [one.version for one in mentions(tmp_path)] == ["0.2.0"] * count
    assert tomllib.loads((tmp_path / "trainer/pyproject.toml").read_text())["project"]["version"] == "0.2.0"


@pytest.mark.parametrize("wrong", ["1.0", "v1.0.0"])
def test_an_invalid_version_is_rejected_and_changes_nothing(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.1.0"\n')
    with pytest.raises(ReleaseError, match=r"use MAJOR\.MINOR\.PATCH"):
        set_version(tmp_path, wrong)
    assert project_version(tmp_path) == "0.1.0"


def test_the_changelog_has_this_version_and_an_unreleased_section() -> None:
    assert next(iter(sections(CHANGELOG))) == "Unreleased"
    assert "### Added" in notes(ROOT, project_version(ROOT))
    kinds = [line.removeprefix("### ") for line in CHANGELOG.splitlines() if line.startswith("### ")]
    assert set(kinds) <= set(KINDS)
    assert [heading["version"] for heading in HEADING.finditer(CHANGELOG) if not heading["date"]] == ["Unreleased"]


def test_a_release_without_notes_is_rejected() -> None:
    with pytest.raises(ReleaseError, match=r"add `## \[9\.9\.9\] - YYYY-MM-DD`"):
        notes(ROOT, "9.9.9")
