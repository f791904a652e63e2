"""A control plane with a scheduler, and nodes on which nothing runs: kwok does what their kubelets would report."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from localcluster.binaries.cache import CONTROL_PLANE, Binaries
from localcluster.control_plane.components import scheduler_command
from localcluster.control_plane.pki import write_kubeconfig
from localcluster.control_plane.standalone import ControlPlane
from support.api_client import Api, Object, wait_for
from support.control_plane.operator_control_plane import CONTROLLERS, GANG_CONTROLLERS, install

STAGES = Path(__file__).with_name("kwok_stages.yaml")
POD_CIDR = "10.90.0.1/16"
NODES = 20
PODS_OF_NODE = 1000


class FakeCluster(ControlPlane):
    """An API server, a scheduler, the controllers that do not look after nodes, and fake nodes with room for all."""

    needs = (CONTROL_PLANE, "kube-scheduler", "kwok")

    def __init__(self) -> None:
        super().__init__(controllers=True)

    def _start(self, binaries: Binaries) -> None:
        super()._start(binaries)
        settings = self.settings
        kubeconfig = settings.component_kubeconfig("kube-scheduler")
        write_kubeconfig(kubeconfig, settings.pki, user="kube-scheduler", server=settings.server, name="fake")
        self._run("kube-scheduler", scheduler_command(binaries, settings, secure_port=0))
        api = Api(self.kubeconfig)
        install(api)
        for number in range(NODES):
            create_node(api, f"fake-{number}")
        self._run("kwok", self._kwok_command(binaries))
        wait_for("the fake nodes", lambda: self._has_ready_nodes(api))

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of all its processes."""
        return {name: process.pid for name, process in self._processes.items()}

    def _has_ready_nodes(self, api: Api) -> bool:
        """Whether kwok has taken all nodes. Raises ClusterError with its last words where it has ended."""
        self._explain()
        return all(is_ready(node) for node in api.get("/api/v1/nodes")["items"])

    def _run(self, name: str, command: list[str]) -> None:
        # mpi-operator's launchers are Jobs.
        controllers = ",".join(f"{one}-controller" for one in (*CONTROLLERS, *GANG_CONTROLLERS, "job"))
        extra = [f"--controllers={controllers}"] if name == "kube-controller-manager" else []
        super()._run(name, [*command, *extra])

    def _kwok_command(self, binaries: Binaries) -> list[str]:
        return [
            str(binaries.path("kwok")),
            f"--config={STAGES}",
            f"--kubeconfig={self.kubeconfig}",
            "--manage-all-nodes=true",
            f"--cidr={POD_CIDR}",
            "--node-lease-duration-seconds=0",  # nobody looks at the nodes' life signs
        ]


def create_node(api: Api, name: str) -> None:
    """A node that the scheduler uses at once."""
    room = {"cpu": "100k", "memory": "100Ti", "pods": str(PODS_OF_NODE)}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    api.create("/api/v1/nodes", body | {"status": {"allocatable": room, "capacity": room}})
    # The API server taints new nodes as not ready, and the controller that would remove that is not here.
    api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})


def is_ready(found: Object) -> bool:
    """Whether a pod is ready, or a node: kwok has taken it."""
    conditions = found["status"].get("conditions", ())
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
