"""The resource, the operator, the charts and, with NODES=1, jobs with pods, on other versions of Kubernetes."""

from __future__ import annotations

import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import partial

from stages.commands import BYTECODE, PYTEST, call, cluster
from stages.settings import CLUSTER, ROOT, StageError

VARIABLE = "KUBERNETES_VERSION"  # of localcluster/binaries/kubernetes.py
PARTS = {"resource": "tests/crd", "operator": "tests/integration", "charts": "tests/charts"}
# Older versions have no PodGroups.
FIRST_WITH_GANGS = 36
GANGS = "tests/integration/scheduling/test_gang*.py"
# NODES=1 runs these end-to-end tests, too, on a local cluster of the version.
NODES = "NODES"
NODES_CLUSTER = "versions"
NODES_TESTS = tuple(f"tests/e2e/lifecycle/test_{name}.py" for name in ("success", "failure", "suspend"))
WITH_A_GANG = "tests/e2e/programs/test_examples.py"


def check_kubernetes_versions() -> None:
    """Run the tests with each version that ONLY selects by a part of its name, and print the table.

    Raises StageError if a part of a version did not pass.
    """
    selection = os.environ.pop("ONLY", "")  # it would select tests as well
    versions = [version for version in all_versions() if selection in version]
    if not versions:
        raise StageError(f"ONLY={selection} selects none of {', '.join(all_versions())}")
    rows = {version: [outcome(part) for part in parts(version)] for version in versions}
    print("\n" + "\n".join(table(rows)), flush=True)
    if failed := [version for version, row in rows.items() if "FAILED" in row]:
        raise StageError(f"these did not pass: {', '.join(failed)}")


def all_versions() -> list[str]:
    """The versions beside the one that all other tests run with."""
    with (ROOT / "localcluster" / "versions.toml").open("rb") as file:
        found: list[str] = tomllib.load(file)["kubernetes"]["others"]
    return found


def parts(version: str) -> Iterator[Callable[[], None]]:
    """The build of a version, and its tests."""
    print(f"\n== Kubernetes {version}", flush=True)
    os.environ[VARIABLE] = version  # for all programs that follow
    yield partial(cluster, "build", "control-plane")
    minor = int(version.split(".")[1])
    has_gangs = minor >= FIRST_WITH_GANGS
    without = () if has_gangs else (f"--ignore-glob={GANGS}",)
    for folder in PARTS.values():
        yield partial(call, *PYTEST, folder, *without, "-n", "2", "--dist", "loadfile", **BYTECODE)
    if os.environ.get(NODES):
        yield partial(run_on_nodes, *NODES_TESTS, *((WITH_A_GANG,) if has_gangs else ()))


def run_on_nodes(*tests: str) -> None:
    """Run end-to-end tests on a cluster of their own, which is removed. Raises StageError if one fails."""
    command = (sys.executable, CLUSTER, "--name", NODES_CLUSTER)
    try:
        call(*command, "up")
        call(*PYTEST, *tests, CLUSTER_NAME=NODES_CLUSTER, **BYTECODE)
    finally:
        call(*command, "down", "--purge")


def outcome(part: Callable[[], None]) -> str:
    """What became of a part, and how long it took."""
    started = time.monotonic()
    try:
        part()
    except StageError as error:
        print(error, file=sys.stderr, flush=True)
        return "FAILED"
    return f"passed, {time.monotonic() - started:.0f} s"


def table(rows: dict[str, list[str]]) -> Iterator[str]:
    """The table of docs/kubernetes-versions.md."""
    header = ("Kubernetes", "build", *PARTS, *(["nodes"] if os.environ.get(NODES) else []))
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    for version, row in rows.items():
        yield f"| {' | '.join((version.removeprefix('v'), *row))} |"
