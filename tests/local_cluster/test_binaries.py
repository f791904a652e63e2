"""Building the cluster's binaries, with a Go that compiles nothing."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localcluster.binaries.cache import CONTROL_PLANE, Binaries
from localcluster.binaries.versions import SOURCE, Component, check_pins, versions
from localcluster.errors import ClusterError
from localcluster.progress import Progress

GO = """#!/bin/sh -e
case $1 in
env) echo go1.99.0 ;;
build)
    echo build >> "$GO_LOG"
    test ! -e "$GO_LOG.fails" || { echo no space left >&2; exit 1; }
    until [ "$1" = -o ]; do shift; done
    directory=$2
    shift 2
    test -d "$directory" || { echo binary > "$directory"; exit; }
    for package; do echo binary > "$directory/${package##*/}"; done ;;
esac
"""
OTHERS = ["node", "containerd", "azure-files", "helm4", "helm3", "actionlint"]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One line for each build by the Go that is on PATH."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GO_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture
def binaries(tmp_path: Path, log: Path) -> Binaries:
    return Binaries(tmp_path / "cache")


def test_a_binary_is_built_with_its_group_and_without_the_rest(binaries: Binaries) -> None:
    binaries.ensure(Progress(), ("kstatus",))
    assert [group.name for group in binaries.missing()] == OTHERS
    assert (binaries.cache / "bin" / "kubectl").read_text() == "binary\n"
    binaries.ensure(Progress())
    assert not binaries.path("kwok").exists(), "an optional group"
    binaries.ensure(Progress(), ("kwok",))
    assert binaries.path("kwok").exists()
    with pytest.raises(ClusterError, match="kubctl cannot be built"):
        binaries.ensure(Progress(), ("kubctl",))


def test_two_builds_at_once_build_each_group_once(binaries: Binaries, log: Path) -> None:
    with ThreadPoolExecutor() as pool:
        for names in ((CONTROL_PLANE,), (), (), (CONTROL_PLANE,)):
            pool.submit(binaries.ensure, Progress(), names)
    assert not binaries.missing()
    assert log.read_text().split() == ["build"] * len(binaries.versions.select())


def test_definitions_of_an_engine_are_kept_beside_it(binaries: Binaries) -> None:
    (group,) = binaries.versions.select(("flux",))
    (component,) = group.components
    source = binaries.cache / "go" / "mod" / f"{component.module}@{component.version}" / group.files[0]
    source.parent.mkdir(parents=True)
    source.write_text("definition\n")
    binaries.ensure(Progress(), ("flux",))
    assert binaries.file("kustomize-controller", source.name).read_text() == "definition\n"


def test_a_build_that_fails_is_repeated_by_the_next_one(binaries: Binaries, log: Path) -> None:
    fails = Path(f"{log}.fails")
    fails.touch()
    with pytest.raises(ClusterError, match="building control-plane ended with: no space left"):
        binaries.ensure(Progress())
    assert len(binaries.missing()) == len(binaries.versions.select())
    fails.unlink()
    binaries.ensure(Progress())
    assert not binaries.missing()


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "etcd/main.go"])
def test_what_binaries_are_made_of_is_in_their_key(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = versions().groups[0]
    before = group.key
    shutil.copytree(SOURCE, tmp_path / "go")
    monkeypatch.setattr("localcluster.binaries.versions.SOURCE", tmp_path / "go")
    assert group.key == before
    with (tmp_path / "go" / file).open("a") as changed:
        changed.write("\n")
    assert group.key != before


def test_a_version_that_the_checksums_do_not_cover_is_refused() -> None:
    check_pins(versions().components)
    with pytest.raises(ClusterError, match=r"k8s\.io/kubernetes v1\.36\.0, but no go\.mod does"):
        check_pins((Component("kubernetes", "v1.36.0", "k8s.io/kubernetes"),))
