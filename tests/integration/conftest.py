"""A control plane and the operator's process for all tests of this folder; each test has its own namespace."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.authentication import login
from integration.process.leader_election import Pair, leader_and_standby
from integration.reason_coverage import ReasonCoverage
from support.api_client import JOBS, Api, Object, binary, clear, job, wait_for
from support.control_plane.cluster_objects import cluster_objects
from support.control_plane.operator_control_plane import (
    OperatorControlPlane,
    install,
    is_ready,
    make_namespace,
    operator_kubeconfig,
)
from support.control_plane.watch_threads import EventRecorder, Kubelet, Recorder, Watch
from support.invariants import CHECKS, OF_THE_OPERATOR_ALONE, violations
from support.job_driver import Job, restricted_pod, submit
from support.kueue.controller import Kueue
from support.kueue.queues import Queue, create_priority_classes, recorded_violations
from support.operator_process import STARTED, Operator

NUMBERS = itertools.count(1)
Watches = tuple[Kubelet, Recorder, EventRecorder]
REASON_COVERAGE = ReasonCoverage(Path(__file__).parent)


def pytest_configure(config: pytest.Config) -> None:
    """Every reason and event must occur, and every right on queues be used, in a run of the whole folder."""
    config.pluginmanager.register(REASON_COVERAGE)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[OperatorControlPlane]:
    """etcd, API server and controller manager."""
    with OperatorControlPlane() as started:
        yield started


@pytest.fixture(scope="session")
def watch_threads(control_plane: OperatorControlPlane) -> Iterator[Watches]:
    """A kubelet that removes deleted pods, and recorders of the jobs and their events."""
    connection = Api(control_plane.kubeconfig)
    install(connection)
    started = (Kubelet(connection), Recorder(connection), EventRecorder(connection))
    for watch in started:
        watch.start()
    yield started
    requests = control_plane.all_requests()
    REASON_COVERAGE.add(reasons=started[1].reasons(), events=started[2].reasons, requests=requests)
    for watch in started:
        watch.end()


@pytest.fixture(scope="session")
def api(control_plane: OperatorControlPlane, watch_threads: Watches) -> Api:
    """The administrator's connection; the CRD is installed and the kubelet runs."""
    return Api(control_plane.kubeconfig)


@pytest.fixture(scope="module", autouse=True)
def check_cluster_objects(api: Api) -> Iterator[None]:
    """Fails the last test of a file if its tests have left, or removed, an object that belongs to no namespace."""
    before = cluster_objects(api)
    yield
    assert cluster_objects(api) == before, "objects of the whole cluster are not as they were before this file"


@pytest.fixture(scope="session")
def recorder(watch_threads: Watches) -> Recorder:
    """Every version of every job."""
    return watch_threads[1]


@pytest.fixture(autouse=True)
def check_watches_and_operators(watch_threads: Watches) -> Iterator[None]:
    """Fails a test in which a watch died or missed an event, or an operator logged an error or exited unexpectedly."""
    yield
    assert [sentence for watch in watch_threads for sentence in watch.errors()] == []
    assert [line for operator in STARTED for line in operator.errors()] == []


@pytest.fixture(scope="session")
def operator_access(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kubeconfig of the operator's service account."""
    return operator_kubeconfig(api, tmp_path_factory.mktemp("operator") / "kubeconfig")


@pytest.fixture(scope="session")
def operator_process(operator_access: Path) -> Iterator[Operator]:
    """The operator that all tests share. The fixture `operator` restarts it after a test that stopped it."""
    shared = Operator(operator_access, operator_access.with_name("log"))
    yield shared
    shared.kill()


@pytest.fixture
def operator(operator_process: Operator) -> Operator:
    """A running operator."""
    if not operator_process.is_running:
        operator_process.start()
    operator_process.new_log_lines()
    return operator_process


@pytest.fixture
def pair(operator_process: Operator, api: Api, tmp_path: Path) -> Iterator[Pair]:
    """A leader and a standby."""
    operator_process.kill()
    with leader_and_standby(api, tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def histories() -> Iterator[list[Sequence[Object]]]:
    """The versions of the jobs of a file. Their kstatus is checked at its end, so that the program starts once."""
    found: list[Sequence[Object]] = []
    yield found
    assert violations(found, binary("kstatus"), without=CHECKS) == []


@pytest.fixture
def namespace(api: Api, recorder: Recorder, histories: list[Sequence[Object]]) -> Iterator[str]:
    """A namespace for one test. At its end, the recorded statuses of all its jobs must be consistent."""
    name = f"test-{next(NUMBERS)}"
    make_namespace(api, name)
    yield name
    recorder.catch_up(name)
    own = [tuple(one) for one in recorder.versions.values() if one and one[0]["metadata"]["namespace"] == name]
    histories += own
    assert violations(own, None, without=OF_THE_OPERATOR_ALONE) == []
    clear(api, name)


@pytest.fixture
def submit_job(api: Api, namespace: str, operator: Operator) -> Callable[..., Job]:
    """Creates a job in the test's namespace, with the operator running."""

    def make(name: str = "train", **spec: Any) -> Job:
        return submit(api, namespace, name, **spec)

    return make


@pytest.fixture(scope="module")
def installed_kueue(
    control_plane: OperatorControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kueue]:
    """Kueue is installed, with the priority classes `urgent` and `relaxed`."""
    started = Kueue(api, control_plane.settings.pki, tmp_path_factory.mktemp("kueue") / "root")
    started.install()
    started.start(**started.with_framework())
    create_priority_classes(api)
    yield started
    started.uninstall()


@pytest.fixture
def kueue(installed_kueue: Kueue) -> Kueue:
    """Kueue runs as docs/jobs.md demands, however the test before has left it."""
    settings = installed_kueue.with_framework()
    if not installed_kueue.is_running or installed_kueue.settings != settings:
        installed_kueue.restart(**settings)
    return installed_kueue


@pytest.fixture
def queue(api: Api, kueue: Kueue, namespace: str, operator: Operator) -> Iterator[Queue]:
    """A queue with room for one job of two workers; no pod may ever run without quota, and no quota remain."""
    with recorded_violations(api, namespace) as quota_violations:
        made = Queue(api, namespace, 2)
        yield made
        made.remove_node()
    assert quota_violations == []


@pytest.fixture
async def connection(operator_access: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiClient]:
    """A connection of the test with the operator's rights, for parts of the operator."""
    monkeypatch.setenv("KUBECONFIG", str(operator_access))
    async with contextlib.aclosing(ApiClient(login(), limit=4)) as opened:
        yield opened


@pytest.fixture
def restart_apiserver(
    control_plane: OperatorControlPlane,
    api: Api,
    watch_threads: Watches,
    check_watches_and_operators: None,
    namespace: str,
) -> Iterator[Callable[..., None]]:
    """Restarts the API server. At the end of the test, the watches have caught up and their gaps are reset."""

    def restart(*, without: tuple[str, ...] = ()) -> None:
        control_plane.restart_apiserver(without=without)
        wait_for("the API server", lambda: is_ready(api))

    yield restart
    reset_gaps(api, watch_threads, namespace)


def reset_gaps(api: Api, watch_threads: tuple[Watch, ...], namespace: str) -> None:
    """Resets the gaps of the watches as soon as all of them receive events again."""
    pods, events = f"/api/v1/namespaces/{namespace}/pods", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    markers = (
        api.create(pods, restricted_pod("marker")),
        api.create(JOBS.format(namespace), job("marker", runPolicy={"managedBy": "example.com/nobody"})),
        api.create(events, marker_event(namespace)),
    )
    for watch, marker in zip(watch_threads, markers, strict=True):
        wait_for(f"{type(watch).__name__} to be back", lambda: marker["metadata"]["uid"] in watch.uids)  # noqa: B023
        watch.gaps.clear()


def marker_event(namespace: str) -> Object:
    """An event about the namespace itself."""
    about = {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    body = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "marker"}, "regarding": about}
    fields = {"type": "Normal", "reason": "Marker", "action": "Test", "reportingController": "example.com/tests"}
    fields |= {"reportingInstance": "tests", "eventTime": datetime.now(UTC).isoformat(timespec="microseconds")}
    return {**body, **fields}
