"""The Python distributions: wheels, source distributions, and what they require."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from horovodjob_release.errors import ReleaseError
from horovodjob_release.licences import UNKNOWN, python_licence
from horovodjob_release.packages import Package
from stages.commands import environment
from stages.python_environment import find_python, find_uv

# Folders with a pyproject.toml of their own.
PROJECTS = (".", "trainer")


def build_distributions(root: Path, target: Path) -> list[Path]:
    """Build a wheel and a source distribution of each project; same sources, same bytes."""
    python = find_python()
    for project in PROJECTS:
        command = [str(find_uv(python)), "build", "--quiet", "--python", python, "--out-dir", str(target)]
        done = subprocess.run(
            [*command, str(root / project)],
            env={**os.environ, **environment(), "SOURCE_DATE_EPOCH": "315532800"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ReleaseError(f"{project}/pyproject.toml cannot be built: {done.stderr.strip()}")
    (target / ".gitignore").unlink(missing_ok=True)  # uv's
    return sorted(path for path in target.iterdir() if path.suffix in (".whl", ".gz"))


def required_packages(wheel: Path, root: Path) -> list[Package]:
    """What a wheel requires, in the versions of uv.lock, and what that requires in turn.

    Packages of extras are included if the lock has them: of others, users choose the version.
    """
    with (root / "uv.lock").open("rb") as file:
        locked = {entry["name"]: entry for entry in tomllib.load(file)["package"]}
    wanted = [one.name for one in _requirements(wheel) if not _is_extra(one) or canonicalize_name(one.name) in locked]
    found = dict[str, Package]()
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name in found:
            continue
        if name not in locked:
            raise ReleaseError(f"{wheel.name} requires {name}, but uv.lock does not have it: run `uv lock`")
        entry = locked[name]
        found[name] = Package("pypi", name, entry["version"], (_installed_licence(name),))
        wanted += [dependency["name"] for dependency in entry.get("dependencies", ())]
    return sorted(found.values())


def wheel_name(wheel: Path) -> str:
    """The name of the distribution in a wheel."""
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0])


def _requirements(wheel: Path) -> Iterable[Requirement]:
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(files.read(name).decode())
    return [Requirement(line) for line in fields.get_all("Requires-Dist", [])]


def _is_extra(requirement: Requirement) -> bool:
    return "extra ==" in str(requirement.marker)


def _installed_licence(name: str) -> str:
    """The licence that the installed package states; this environment may lack TensorFlow."""
    try:
        return python_licence(metadata(name))  # type: ignore[arg-type]
    except PackageNotFoundError:
        return UNKNOWN
