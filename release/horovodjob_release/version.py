"""The version: pyproject.toml has it, and every other place that repeats it is found here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from horovodjob_release.errors import ReleaseError

SOURCE = "pyproject.toml"
VERSION = r"(\d+\.\d+\.\d+(?:-rc\.\d+)?)"
OWN_IMAGE = r"horovodjob/(?:operator|dashboard|hvj|trainer|trainer-gpu|mpi)"
# Files, and the pattern of what repeats the version in them.
PLACES = (
    ("pyproject.toml", r'^name = "horovodjob"\nversion = "([^"]+)"$'),
    ("uv.lock", r'^name = "horovodjob"\nversion = "([^"]+)"$'),
    ("trainer/pyproject.toml", r'^version = "([^"]+)"$'),
    ("charts/*/Chart.yaml", r'^(?:version|appVersion): "?([^"\s]+)"?$'),
    ("charts/**/*.yaml", rf"{OWN_IMAGE}:{VERSION}"),
    ("charts/**/*.md", rf"{OWN_IMAGE}:{VERSION}"),
    ("manifests/**/*.yaml", rf"{OWN_IMAGE}:{VERSION}"),
    ("manifests/ci/*.yml", rf"{OWN_IMAGE}:{VERSION}"),
    ("manifests/ci/*.yaml", rf"horovodjob=={VERSION}"),
    ("manifests/gitops/**/*.env", rf"{OWN_IMAGE}:{VERSION}"),
    ("manifests/gitops/**/*.yaml", rf"chart: horovodjob-operator\n +targetRevision: {VERSION}$"),
    ("manifests/gitops/**/*.yaml", rf'semver: "~{VERSION}"'),
    ("manifests/base/kustomization.yaml", r"newTag: (\S+)"),
    ("docs/**/*.md", rf"newTag: {VERSION}"),
    ("Dockerfile", rf"{OWN_IMAGE}:{VERSION}"),
    ("docs/**/*.md", rf"{OWN_IMAGE}:{VERSION}"),
    ("docs/**/*.md", rf"(?:horovodjob(?:-operator|-crd|_trainer)?|operator|trainer)-{VERSION}"),
    ("README.md", rf"{OWN_IMAGE}:{VERSION}"),
)


@dataclass(frozen=True, slots=True)
class Mention:
    """One place that repeats the version."""

    path: Path
    span: tuple[int, int]
    version: str


def project_version(root: Path) -> str:
    """The version of this checkout."""
    with (root / SOURCE).open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def mentions(root: Path) -> Iterator[Mention]:
    """Every place that repeats the version, file by file and from the end of each file to its beginning."""
    for files, pattern in PLACES:
        for path in sorted(root.glob(files)):
            for found in reversed(list(re.finditer(pattern, path.read_text(), re.MULTILINE))):
                yield Mention(path, found.span(1), found[1])


def set_version(root: Path, version: str) -> list[Path]:
    """Write a version to every place that repeats it, and give the files."""
    if not re.fullmatch(VERSION, version):
        raise ReleaseError(f"`{version}` is not a version: use MAJOR.MINOR.PATCH, with -rc.N before it is released")
    changed = []
    for mention in mentions(root):
        text = mention.path.read_text()
        begin, end = mention.span
        mention.path.write_text(text[:begin] + version + text[end:])
        changed.append(mention.path)
    return list(dict.fromkeys(changed))
