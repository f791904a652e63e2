"""The stages, and the stages of a complete run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from stages.commands import cluster, images, pytest, pytest_twice
from stages.debian import install_all_packages
from stages.horovod_versions import check_versions
from stages.kubernetes_versions import check_kubernetes_versions
from stages.lint import lint
from stages.python_environment import prepare_environment, prepare_trainer_environment
from stages.schedule import Stage
from stages.settings import ROOT, StageError
from stages.site import build_site

NEEDS_APISERVER = ("tests/crd", "tests/integration")
NEEDS_COMMAND_LINE = ("tests/cli", "tests/azure")
NEEDS_HELM = ("tests/charts", "tests/monitoring", "tests/release")
NEEDS_ENGINES = ("tests/gitops",)
NEEDS_KUEUE = ("tests/queues",)
NEEDS_TENSORFLOW = ("tests/trainer",)
NEEDS_NODES = ("tests/local_cluster",)
NEEDS_OPERATOR = ("tests/e2e",)
# Tests that mostly wait run in parallel, each file on one worker.
APISERVER_WORKERS = "2"
E2E_WORKERS = "4"
TRAINER_WORKERS = "2"


def prerequisites() -> None:
    """The prerequisites of this machine: packages, and the kernel features of a cluster."""
    install_all_packages()
    cluster("check")


def unit() -> None:
    """Tests that need neither an API server nor TensorFlow nor a cluster."""
    server = (*NEEDS_APISERVER, *NEEDS_COMMAND_LINE, *NEEDS_HELM, *NEEDS_ENGINES)
    others = (*server, *NEEDS_KUEUE, *NEEDS_TENSORFLOW, *NEEDS_NODES, *NEEDS_OPERATOR)
    _test(("tests",), *(f"--ignore={path}" for path in others))


def apiserver() -> None:
    """Tests against a real API server without a node."""
    _test(NEEDS_APISERVER, workers=APISERVER_WORKERS)


def command_line() -> None:
    """Tests of `hvj` against a real API server and servers that speak Azure's protocols."""
    _test(NEEDS_COMMAND_LINE, workers=APISERVER_WORKERS)


def charts() -> None:
    """Tests of charts, manifests, monitoring and releases, against a real API server without a node."""
    _test(NEEDS_HELM, workers=APISERVER_WORKERS)


def gitops() -> None:
    """Tests of Argo CD and Flux, whose controllers run against a real API server without a node."""
    _test(NEEDS_ENGINES, workers=APISERVER_WORKERS)


def queues() -> None:
    """Tests of many jobs and of several clusters with Kueue, which are not part of a complete run."""
    _test(NEEDS_KUEUE)


def trainer() -> None:
    """Tests with real ranks under mpirun."""
    _test(NEEDS_TENSORFLOW, "--no-loadscope-reorder", workers=TRAINER_WORKERS)


def localcluster() -> None:
    """Tests of the local cluster itself, on a cluster of their own."""
    _test(NEEDS_NODES)


def cluster_up() -> None:
    """The local cluster, with the images."""
    cluster("up")
    images("load")


def e2e() -> None:
    """End-to-end tests; without ONLY those that can run in parallel."""
    selection = () if _only() else ("-m", "not serial")
    _test(NEEDS_OPERATOR, *selection, "--no-loadscope-reorder", workers=E2E_WORKERS)


def e2e_serial() -> None:
    """End-to-end tests that disturb others, in sequence."""
    _test(NEEDS_OPERATOR, "-m", "serial")


def _test(folders: tuple[str, ...], *arguments: str, workers: str = "") -> None:
    """Run the tests of some folders, with ONLY those that it selects. Raises StageError if a folder is missing."""
    if missing := [folder for folder in folders if not Path(ROOT, folder).is_dir()]:
        raise StageError(f"{missing[0]} is missing, so its tests cannot pass")
    if _only():
        pytest(*folders, *arguments, "-k", _only())
    else:
        # A test that hangs and ends its process would hang in the next one too.
        parallel = ("-n", workers, "--dist", "loadfile", "--max-worker-restart", "0")
        pytest_twice((*folders, *arguments), parallel if workers else ())


def _only() -> str:
    """The selection of tests by the user, in the syntax of `pytest -k`; by default all."""
    return os.environ.get("ONLY", "")


FUNCTIONS: dict[str, Callable[[], None]] = {
    "prerequisites": prerequisites,
    "environment": prepare_environment,
    "trainer-environment": prepare_trainer_environment,
    "lint": lint,
    "site": build_site,
    "unit": unit,
    "downloads": lambda: cluster("download"),
    "control-plane": lambda: cluster("build", "control-plane"),
    "helm": lambda: cluster("build", "control-plane", "helm4", "helm3"),
    "engines": lambda: cluster(
        "build", "control-plane", "helm4", "helm3", "flux", "helm-controller", "source-controller", "argocd"
    ),
    "kueue": lambda: cluster("build", "control-plane", "kueue"),
    "binaries": lambda: cluster("build"),
    "demo-binaries": lambda: cluster("build", "control-plane", "node", "containerd", "azure-files", "helm4"),
    "small-images": lambda: images("build", "operator", "mpi"),
    "images": lambda: images("build"),
    "demo-images": lambda: images("build", "operator", "trainer"),
    "apiserver": apiserver,
    "cli": command_line,
    "charts": charts,
    "gitops": gitops,
    "queues": queues,
    "trainer": trainer,
    "horovod-versions": check_versions,
    "kubernetes-versions": check_kubernetes_versions,
    "localcluster": localcluster,
    "cluster-up": cluster_up,
    "e2e": e2e,
    "e2e-serial": e2e_serial,
    "cluster-down": lambda: cluster("down"),
}


def stage(name: str, *, needs: str = "", after: str = "", niceness: int = 0, shows_output: bool = False) -> Stage:
    """A stage of `FUNCTIONS`; `needs` and `after` are names separated by blanks."""
    command = (sys.executable, str(Path(__file__).parent), name)
    return Stage(name, command, tuple(needs.split()), tuple(after.split()), niceness, shows_output)


# Of the stages that can run, the first starts first: the longest path is binaries, images, cluster, e2e tests.
ALL = (
    stage("prerequisites"),
    stage("environment", needs="prerequisites"),
    stage("control-plane", needs="prerequisites"),
    stage("downloads", needs="prerequisites"),
    stage("trainer-environment", needs="environment"),
    stage("lint", needs="environment", shows_output=True),
    stage("unit", needs="environment", shows_output=True),
    stage("binaries", needs="control-plane"),
    stage("kueue", needs="control-plane"),
    stage("helm", needs="control-plane", after="binaries"),
    stage("small-images", needs="prerequisites"),
    stage("engines", needs="helm", after="binaries"),
    stage("images", needs="trainer-environment small-images"),
    stage("apiserver", needs="environment kueue", shows_output=True),
    stage("cli", needs="environment control-plane", after="localcluster", niceness=5, shows_output=True),
    stage("trainer", needs="trainer-environment", shows_output=True),
    # Mostly waits, so it slows the others little.
    stage("localcluster", needs="environment binaries", after="lint unit", shows_output=True),
    # The last tests of hvj run beside end-to-end tests, which often wait for pods. Those of the trainer do not: a rank
    # that waits for another one, which has no processor, occupies a processor meanwhile.
    stage("cluster-up", needs="binaries images", after="apiserver lint unit localcluster trainer"),
    stage("e2e", needs="environment cluster-up", shows_output=True),
    stage("e2e-serial", needs="environment cluster-up", after="e2e", shows_output=True),
    # Beside them, because one test at a time leaves half of the processors to others.
    stage("gitops", needs="environment engines", after="apiserver cli e2e", niceness=5, shows_output=True),
    stage("charts", needs="environment helm", after="apiserver e2e", niceness=5, shows_output=True),
)
GIVEN_CLUSTER = (
    stage("environment"),
    stage("e2e", needs="environment", shows_output=True),
    stage("e2e-serial", needs="environment", after="e2e", shows_output=True),
)
# The stages of the demonstration, which then starts the cluster itself.
DEMO = (
    stage("prerequisites"),
    stage("demo-binaries", needs="prerequisites"),
    stage("demo-images", needs="prerequisites"),
)
