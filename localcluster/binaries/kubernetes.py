"""Another version of Kubernetes, for tests of the versions that the charts promise.

KUBERNETES_VERSION selects one of `kubernetes.others` in versions.toml. The modules are not locked: the checksum
database of Go vouches for them, and they run in tests only.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from localcluster.binaries.toolchain import Go, locked
from localcluster.binaries.versions import Versions
from localcluster.errors import ClusterError
from localcluster.progress import Progress

VARIABLE = "KUBERNETES_VERSION"
# kubectl is not among them: it works with older and newer API servers, and tests compare what it prints.
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
STAGING = "=> ./staging/src/"
# Parts of which the Go proxy has no such release, but another one of the same minor version.
OTHER_RELEASES = {"v1.31.13": {"k8s.io/cloud-provider": "v0.31.14", "k8s.io/kube-proxy": "v0.31.11"}}


def selected(versions: Versions) -> str:
    """The version that KUBERNETES_VERSION selects; empty without it. Raises ClusterError."""
    version = os.environ.get(VARIABLE, "")
    if version and version not in versions.other_kubernetes:
        raise ClusterError(f"{VARIABLE} is {version}, and there are {', '.join(versions.other_kubernetes)}")
    return version


def minor(version: str) -> int:
    """The second number of a version of Kubernetes."""
    return int(version.split(".")[1])


def directory(cache: Path, version: str) -> Path:
    """The directory of the binaries of a version."""
    return cache / "binaries" / f"kubernetes-{version}"


def missing(cache: Path, version: str, programs: Iterable[str]) -> list[str]:
    """Those of `programs` that are not built, in the order of PROGRAMS."""
    wanted, target = set(programs), directory(cache, version)
    return [name for name in PROGRAMS if name in wanted and not (target / name).exists()]


def build(go: Go, version: str, programs: Iterable[str], progress: Progress) -> None:
    """Build those of `programs` that do not exist. Raises ClusterError."""
    target = directory(go.cache, version)
    with locked(target.with_name(f".{target.name}.lock"), progress):
        names = missing(go.cache, version, programs)
        if not names:
            return
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            source, output = Path(scratch, "source"), Path(scratch, "output")
            source.mkdir()
            output.mkdir()
            (source / "go.mod").write_text("\n".join(module(go.requirements(f"k8s.io/kubernetes@{version}"), version)))
            progress.step(f"building {', '.join(names)} of Kubernetes {version}")
            packages = [f"k8s.io/kubernetes/cmd/{name}" for name in names]
            go.build_programs(source, packages, stamps(version), output, progress)
            for program in output.iterdir():  # last, so that an interrupted build leaves no incomplete program
                program.rename(target / program.name)


def stamps(version: str) -> dict[str, str]:
    """Variables without which the programs call themselves v0.0.0-master, which charts refuse."""
    package, values = "k8s.io/component-base/version", {"Version": version, "Major": "1", "Minor": str(minor(version))}
    return {f"{package}.git{name}": value for name, value in values.items()}


def module(requirements: str, version: str) -> Iterator[str]:
    """The lines of a go.mod that requires Kubernetes, whose own parts are modules of the same release.

    `requirements` is the go.mod of Kubernetes, which takes these parts from a directory of its repository.
    """
    own = f"v0.{version.removeprefix('v1.')}"
    language = next(line for line in requirements.splitlines() if line.startswith("go "))
    parts = [line.split(STAGING)[0].split()[-1] for line in requirements.splitlines() if STAGING in line]
    yield from ("module horovodjob.dev/kubernetes", language, f"require k8s.io/kubernetes {version}")
    others = OTHER_RELEASES.get(version, {})
    yield from (f"replace {part} => {part} {others.get(part, own)}" for part in parts)
