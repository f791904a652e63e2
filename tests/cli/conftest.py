"""A real API server without operator and nodes, and `hvj` as a user runs it."""

import contextlib
import itertools
import signal
from collections.abc import Iterator

import pytest
import yaml

from cli.cluster.kueue_objects import Kueue
from cli.cluster.nodes import POOL, Nodes
from cli.cluster_state import ClusterState
from cli.kubelet import Kubelet
from cli.program import Hvj, run
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Api, clear
from support.control_plane.distribution import one_control_plane
from support.control_plane.fixtures import api, control_plane

NUMBERS = itertools.count(1)

__all__ = ["api", "control_plane"]

pytest_xdist_make_scheduler = one_control_plane("tests/cli")


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Allows `hvj` to receive SIGINT, which background processes of a script ignore by default."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def signed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sign-in at Azure, and no request that looks for one."""
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")


@pytest.fixture
def kubelet(control_plane: ControlPlane, api: Api) -> Iterator[Kubelet]:
    """The kubelet that serves logs and commands to the API server."""
    with Kubelet(control_plane, api) as hvj_process:
        yield hvj_process


@pytest.fixture
def workspace(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A namespace for one test. It is the namespace of the kubeconfig's context, so `hvj` needs no -w."""
    name = f"test-{next(NUMBERS)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    kubeconfig = yaml.safe_load(api.kubeconfig.read_text())
    kubeconfig["contexts"][0]["context"]["namespace"] = name
    path = api.kubeconfig.with_name(f"{name}.kubeconfig")
    path.write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(path))
    yield name
    clear(api, name)


@pytest.fixture
def hvj(workspace: str) -> Hvj:
    """Runs `hvj` with the test's workspace as the default one."""
    return run


@pytest.fixture
def cluster(api: Api, workspace: str) -> ClusterState:
    """The state that operator and kubelet report in the test's workspace."""
    return ClusterState(api, workspace)


@pytest.fixture
def nodes(api: Api, workspace: str) -> Iterator[Nodes]:
    """Nodes of the cluster, which has none otherwise, and pods in the test's workspace on them."""
    made = Nodes(api, workspace)
    yield made
    made.delete_all()


@pytest.fixture
def kueue(api: Api, workspace: str) -> Iterator[Kueue]:
    """A queue in the test's workspace for the nodes of the pool."""
    with contextlib.closing(Kueue(api, workspace, {"kubernetes.azure.com/agentpool": POOL})) as made:
        yield made


@pytest.fixture
def viewer(api: Api) -> Iterator[str]:
    """A ClusterRole that can only read jobs."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    rules = [{"apiGroups": ["horovodjob.dev"], "resources": ["horovodjobs"], "verbs": ["get", "list", "watch"]}]
    api.create(roles, {"metadata": {"name": "dashboard-viewer"}, "rules": rules})
    yield "dashboard-viewer"
    api.delete(f"{roles}/dashboard-viewer")
