"""Names, addresses and paths of one local cluster. Pure: computed from its name and the cache's path."""

import ipaddress
import os
import re
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.errors import ClusterError

DEFAULT_NAME = "main"
NODE_NAME = "node1"
RUN_ROOT = Path("/run/horovodjob")
API_PORT = 6443
AZURE_FILES = "azure-files"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "containerd",
    "kubelet",
    "kube-proxy",
    "policy-engine",
    AZURE_FILES,
)


def cache_directory() -> Path:
    """Where builds and state live, outside the source tree: $HOROVODJOB_CACHE or ~/.cache/horovodjob."""
    configured = os.environ.get("HOROVODJOB_CACHE")
    return Path(configured).absolute() if configured else Path.home() / ".cache" / "horovodjob"


class Directories(ABC):
    """Where a cluster, or one node of it, keeps its files."""

    __slots__ = ()

    @property
    @abstractmethod
    def state(self) -> Path:
        """What outlives a process: certificates, configuration, logs, etcd's data, images."""

    @property
    @abstractmethod
    def run(self) -> Path:
        """What dies with the cluster: process ids, sockets, the network namespace. Short, for socket paths."""

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def etc(self) -> Path:
        return self.state / "etc"

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    @property
    def image_store(self) -> Path:
        return self.state / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"


@dataclass(frozen=True, slots=True)
class Cluster(Directories):
    """One local cluster. Clusters of different names can run side by side."""

    name: str = DEFAULT_NAME
    cache: Path = field(default_factory=cache_directory)

    def __post_init__(self) -> None:
        # The name becomes part of an interface name, and those have at most 15 characters.
        if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", self.name):
            raise ClusterError(f"cluster name {self.name!r} must be 1 to 8 lower-case letters or digits")

    @property
    def slot(self) -> int:
        """Which of ten sets of address ranges this cluster uses; the default cluster has the first."""
        return 0 if self.name == DEFAULT_NAME else 1 + zlib.crc32(self.name.encode()) % 9

    def _block(self, offset: int) -> str:
        return f"10.{80 + 16 * self.slot + offset}"

    @property
    def pod_cidr(self) -> str:
        return f"{self._block(8)}.0.0/16"

    @property
    def node_cidr(self) -> str:
        return f"{self._block(9)}.0.0/24"

    @property
    def service_cidr(self) -> str:
        return f"{self._block(16)}.0.0/16"

    @property
    def host_address(self) -> str:
        return f"{self._block(9)}.0.1"

    @property
    def node_address(self) -> str:
        return f"{self._block(9)}.0.2"

    @property
    def api_service_address(self) -> str:
        return f"{self._block(16)}.0.1"

    @property
    def dns_address(self) -> str:
        return f"{self._block(16)}.0.10"

    @property
    def interface(self) -> str:
        """Name of the network interface that leads to the node; also of its cgroup and CNI network."""
        return f"hvj-{self.name}"

    @property
    def state(self) -> Path:
        return self.cache / ("cluster" if self.name == DEFAULT_NAME else f"cluster-{self.name}")

    @property
    def run(self) -> Path:
        return RUN_ROOT / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def netns(self) -> Path:
        return self.run / "netns"

    @property
    def azure_files(self) -> Path:
        """The storage accounts: `<account>/<share>/` below it is the directory of a share."""
        return self.state / "azure-files"

    @property
    def gpu_count_file(self) -> Path:
        """How many GPUs the node is to pretend, so that a restart can say so again."""
        return self.state / "gpus"

    @property
    def shared_layers(self) -> Path:
        """Layers of images that the nodes beside the first have from it."""
        return self.state / "layers"

    @property
    def nodes_file(self) -> Path:
        """The nodes that there are to be beside the first one."""
        return self.state / "nodes.json"


@dataclass(frozen=True, slots=True)
class Node(Directories):
    """A kubelet and a containerd. All nodes share the cluster's network and this machine."""

    cluster: Cluster
    name: str = NODE_NAME
    number: int = 1
    labels: tuple[str, ...] = ()  # key=value
    taints: tuple[str, ...] = ()  # key=value:effect
    gpus: int = 0

    @property
    def is_first(self) -> bool:
        return self.number == 1

    @property
    def taint_objects(self) -> tuple[dict[str, str], ...]:
        """The taints as the API spells them."""
        parts = [re.fullmatch("([^=:]*)(?:=([^:]*))?:(.*)", taint) for taint in self.taints]
        return tuple({"key": part[1], "value": part[2] or "", "effect": part[3]} for part in parts if part)

    @property
    def address(self) -> str:
        return str(ipaddress.ip_address(self.cluster.node_address) + self.number - 1)

    @property
    def state(self) -> Path:
        """What `Cluster.state` is for the cluster; without the logs, which are the cluster's."""
        return self.cluster.state if self.is_first else self.cluster.state / "nodes" / self.name

    @property
    def run(self) -> Path:
        return self.cluster.run if self.is_first else self.cluster.run / "nodes" / self.name

    @property
    def pod_logs(self) -> Path:
        """Not shared: a kubelet removes the logs of pods that it does not know."""
        return self.cluster.log / ("pods" if self.is_first else f"pods-{self.name}")

    @property
    def cgroup(self) -> str:
        """Below the cluster's, beside the cgroups of the first node's pods."""
        return self.cluster.interface if self.is_first else f"{self.cluster.interface}/{self.name}"

    def component(self, program: str) -> str:
        """Name of the component that is this node's `program`."""
        return program if self.is_first else f"{program}-{self.name}"
