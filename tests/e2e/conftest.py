"""Fixtures of the end-to-end tests: the cluster, the operator, a namespace for each test."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import install, local_only, once
from e2e.access import JOBS, Kubectl
from e2e.install import Operator, Target, kstatus_program
from e2e.namespace import Namespace
from e2e.once import Once
from e2e.recorder import Recorder
from localcluster.settings import Cluster
from support.api_client import Api
from support.gitops.samples import write_samples
from support.helm import HELM3, HELM4, Helm

OPERATOR = pytest.StashKey[Operator]()
NOT_RUN = pytest.StashKey[dict[str, str]]()
FOLDER = Path(__file__).parent
# The files that take longest, in the order in which they start: the last file to start should be a short one.
SLOW_FILES = (
    "test_migration",
    "test_stalls",
    "test_node_loss",
    "test_elastic",
    "test_training",
    "test_azure_files",
    "test_network_loss",
    "test_scheduling",
    "test_bad_input",
    "test_program",
    "test_disruptions",
    "test_preparation",
    "test_mpi",
)
# The UID of the trainer image's user, who must be able to write to a directory of this machine.
IMAGE_USER = 1000


def pytest_configure(config: pytest.Config) -> None:
    """Starts the list of tests that do not run."""
    config.stash[NOT_RUN] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests that need the local cluster on another one; tests about the whole session come last."""
    own = [item for item in items if item.path.is_relative_to(FOLDER)]
    if entries := local_only.stale(own):
        raise pytest.UsageError(f"tests/e2e/local_only.py names tests that do not exist: {entries}")
    if install.given_kubeconfig():
        reasons = {item.nodeid: local_only.reason(item) for item in own}
        not_run = {name: reason for name, reason in reasons.items() if reason}
        config.stash[NOT_RUN].update(not_run)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in not_run])
        items[:] = [item for item in items if item.nodeid not in not_run]
    order = {name: index for index, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: (item.path.stem == "test_invariants", order.get(item.path.stem, len(order))))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a serial test that runs beside other workers."""
    if once.is_worker(item.config) and item.get_closest_marker("serial"):
        pytest.fail("it disturbs the whole cluster: run it with `-m serial`, without -n", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Sends the tests that this worker did not run to the main process."""
    if once.is_worker(session.config):
        vars(session.config)["workeroutput"]["not_run"] = session.config.stash[NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds the tests that a worker did not run."""
    node.config.stash[NOT_RUN].update(getattr(node, "workeroutput", {}).get("not_run", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the tests that did not run because they need the local cluster."""
    if not (given := install.given_kubeconfig()):
        return
    terminalreporter.section("not run on a given cluster")
    for name, reason in config.stash[NOT_RUN].items():
        terminalreporter.write_line(f"{name}: {reason}")
    if not kstatus_program():
        terminalreporter.write_line("kstatus of each status: there is no kstatus on PATH")
    terminalreporter.write_line(f"{len(config.stash[NOT_RUN])} tests need the local cluster; tested was {given}")


@pytest.fixture(scope="session")
def prepared(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Preparations that run once for all workers."""
    return once.once(pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def target(prepared: Once) -> Target:
    """The cluster; the local one is up."""
    found = install.target()
    prepared("cluster", found.up)
    assert kstatus_program() or not found.local, "there is no kstatus: `python3 localcluster build`"
    return found


@pytest.fixture(scope="session")
def local(target: Target) -> Cluster:
    """The local cluster, for the tests that local_only.py names."""
    assert target.local, "a test that needs the local cluster has to stand in tests/e2e/local_only.py"
    return target.local


@pytest.fixture(scope="session")
def images(target: Target, prepared: Once) -> dict[str, str]:
    """References of the images, by role."""
    references: dict[str, str] = prepared("images", lambda: install.images(target))
    return references


@pytest.fixture(scope="session")
def api(target: Target) -> Api:
    """The API server, as the administrator."""
    return Api(target.kubeconfig)


@pytest.fixture(scope="session")
def kubectl(target: Target) -> Kubectl:
    """The command line, as the administrator."""
    return target.kubectl()


@pytest.fixture(scope="session")
def helm(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 4, as the administrator."""
    return Helm(HELM4, target.kubeconfig, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def helm3(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3, as the administrator."""
    return Helm(HELM3, target.kubeconfig, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def operator(
    target: Target,
    images: dict[str, str],
    api: Api,
    kubectl: Kubectl,
    helm: Helm,
    prepared: Once,
    pytestconfig: pytest.Config,
) -> Iterator[Operator]:
    """The operator, installed from the chart."""
    prepared("operator", lambda: install.install_operator(helm, kubectl, images))
    running = Operator(api, target)
    running.running()
    pytestconfig.stash[OPERATOR] = running
    yield running
    if once.is_worker(pytestconfig):
        # The serial tests come later and read the log of this container from its start.
        assert not running.restarted(), "the operator was restarted or replaced, and no test of these does that"


@pytest.fixture(scope="session")
def jobs(operator: Operator, api: Api) -> Iterator[Recorder]:
    """Every version of every job since the session began; samples of them are written to HEALTH_SAMPLES."""
    recorder = Recorder(api, f"{JOBS}/horovodjobs").begin()
    yield recorder
    if directory := os.environ.get("HEALTH_SAMPLES"):
        write_samples(recorder.history.values(), Path(directory))


@pytest.fixture(scope="session")
def pods(operator: Operator, api: Api) -> Recorder:
    """Every version of every job's pods since the session began."""
    return Recorder(api, "/api/v1/pods", "horovodjob.dev/job").begin()


@pytest.fixture(scope="session")
def new_namespace(
    target: Target, api: Api, kubectl: Kubectl, jobs: Recorder, pods: Recorder, images: dict[str, str]
) -> Iterator[Callable[..., Namespace]]:
    """Creates namespaces; the caller removes them."""
    made = []

    def make(name: str, level: str = "restricted") -> Namespace:
        namespace = Namespace(
            api=api, kubectl=kubectl, jobs=jobs, pods=pods, image=images["trainer"], name=name, local=target.local
        )
        namespace.create(level)
        made.append(namespace)
        return namespace

    yield make
    for namespace in made:  # again, for the deletion of their namespaces
        namespace.check_invariants()


@pytest.fixture
def namespace(
    new_namespace: Callable[..., Namespace], request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Iterator[Namespace]:
    """A namespace of the test, at Pod Security restricted."""
    words = re.sub("[^a-z0-9]+", "-", request.node.originalname.removeprefix("test_").lower())
    made = new_namespace(words)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def module_namespace(new_namespace: Callable[..., Namespace], request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of the tests of one file, at Pod Security restricted."""
    made = new_namespace(request.module.__name__.rpartition("test_")[2].replace("_", "-"))
    yield made
    made.remove()


@pytest.fixture(scope="module")
def gpus_alone(prepared: Once) -> Iterator[None]:
    """The right to add GPUs to the cluster: jobs of another file would be scheduled to them as well."""
    with prepared.alone("gpus"):
        yield


@pytest.fixture(scope="session")
def shared_directory(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Creates directories of the node that pods of the trainer image can write.

    On a given cluster no pod mounts them: only tests in local_only.py read them.
    """

    def make(name: str) -> Path:
        if not target.local:
            return tmp_path_factory.mktemp(name)
        directory = target.local.state / "e2e" / f"{name}-{secrets.token_hex(4)}"
        directory.mkdir(parents=True)
        os.chown(directory, IMAGE_USER, IMAGE_USER)
        return directory

    return make


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds diagnostics of the cluster to the report of a failure."""
    outcome: Any = yield
    report = outcome.get_result()
    if not report.failed:
        return
    try:
        for section in _diagnostics(item):
            report.sections.append(section)
    except AssertionError as error:  # a recorder that has died fails this test, and must not end the session
        report.sections.append(("the diagnostics end here", str(error)))


def _diagnostics(item: pytest.Item) -> Iterator[tuple[str, str]]:
    shown = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Namespace)]
    for namespace in shown:
        yield from namespace.diagnostics()
    if operator := item.config.stash.get(OPERATOR, None):
        names = [namespace.name for namespace in shown]
        own = [line for line in operator.lines if any(name in line for name in names)]
        yield "operator log", "\n".join((own or operator.lines)[-40:])
