"""Names, addresses and paths of a cluster and its nodes. Pure: they follow from the name and the path of the cache."""

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
    """The directory of builds and of the state of clusters: $HOROVODJOB_CACHE, or ~/.cache/horovodjob."""
    configured = os.environ.get("HOROVODJOB_CACHE")
    return Path(configured).absolute() if configured else Path.home() / ".cache" / "horovodjob"


class Directories(ABC):
    """The directories of a cluster or of one of its nodes."""

    __slots__ = ()

    @property
    @abstractmethod
    def state(self) -> Path:
        """Certificates, configuration, logs, the data of etcd, and images. On disk."""

    @property
    @abstractmethod
    def run(self) -> Path:
        """Process ids, sockets and the network namespace; short, because the length of socket paths is limited."""

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.state / "pki"

    @property
    def etc(self) -> Path:
        """Configuration files of components."""
        return self.state / "etc"

    @property
    def kubelet_root(self) -> Path:
        """The root directory of the kubelet, with the volumes of pods."""
        return self.state / "kubelet"

    @property
    def image_store(self) -> Path:
        """The root directory of containerd, with images and layers."""
        return self.state / "containerd"

    @property
    def containerd_socket(self) -> Path:
        """The socket of containerd."""
        return self.run / "containerd.sock"


@dataclass(frozen=True, slots=True)
class Cluster(Directories):
    """A local cluster. Clusters with different names can run at the same time."""

    name: str = DEFAULT_NAME
    cache: Path = field(default_factory=cache_directory)

    def __post_init__(self) -> None:
        # The name is part of the name of a network interface, which has at most 15 characters.
        if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", self.name):
            raise ClusterError(f"cluster name {self.name!r} must be 1 to 8 lower-case letters or digits")

    @property
    def slot(self) -> int:
        """The number of this cluster's address ranges, of ten; the default cluster has 0."""
        return 0 if self.name == DEFAULT_NAME else 1 + zlib.crc32(self.name.encode()) % 9

    def _block(self, offset: int) -> str:
        return f"10.{80 + 16 * self.slot + offset}"

    @property
    def pod_cidr(self) -> str:
        """The addresses of pods."""
        return f"{self._block(8)}.0.0/16"

    @property
    def node_cidr(self) -> str:
        """The addresses of nodes, and of this machine for them."""
        return f"{self._block(9)}.0.0/24"

    @property
    def service_cidr(self) -> str:
        """The addresses of Services."""
        return f"{self._block(16)}.0.0/16"

    @property
    def host_address(self) -> str:
        """The address of this machine in the network of the nodes."""
        return f"{self._block(9)}.0.1"

    @property
    def node_address(self) -> str:
        """The address of the first node and of the API server."""
        return f"{self._block(9)}.0.2"

    @property
    def api_service_address(self) -> str:
        """The address of the Service `kubernetes`."""
        return f"{self._block(16)}.0.1"

    @property
    def dns_address(self) -> str:
        """The address of the Service `kube-dns`."""
        return f"{self._block(16)}.0.10"

    @property
    def interface(self) -> str:
        """The name of the network interface to the first node, of its cgroup, and of the CNI network."""
        return f"hvj-{self.name}"

    @property
    def state(self) -> Path:
        """In the cache, so that images and logs remain after `down`."""
        return self.cache / ("cluster" if self.name == DEFAULT_NAME else f"cluster-{self.name}")

    @property
    def run(self) -> Path:
        """In /run, which a restart of this machine clears."""
        return RUN_ROOT / self.name

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator, which `up` prints."""
        return self.state / "kubeconfig"

    @property
    def log(self) -> Path:
        """The logs of components and pods, and the audit log."""
        return self.state / "log"

    @property
    def netns(self) -> Path:
        """The mount point of the network namespace that all components share."""
        return self.run / "netns"

    @property
    def azure_files(self) -> Path:
        """The storage accounts: `<account>/<share>/` below it is the directory of a share."""
        return self.state / "azure-files"

    @property
    def gpu_count_file(self) -> Path:
        """The number of GPUs that the first node advertises, for its next start."""
        return self.state / "gpus"

    @property
    def shared_layers(self) -> Path:
        """Layers of images that all nodes share."""
        return self.state / "layers"

    @property
    def nodes_file(self) -> Path:
        """The list of additional nodes."""
        return self.state / "nodes.json"


@dataclass(frozen=True, slots=True)
class Node(Directories):
    """A node: a kubelet and a containerd. All nodes share the network namespace of the cluster."""

    cluster: Cluster
    name: str = NODE_NAME
    number: int = 1
    labels: tuple[str, ...] = ()  # key=value
    taints: tuple[str, ...] = ()  # key=value:effect
    gpus: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the node that each cluster has."""
        return self.number == 1

    @property
    def taint_objects(self) -> tuple[dict[str, str], ...]:
        """The taints as objects of the API."""
        parts = [re.fullmatch("([^=:]*)(?:=([^:]*))?:(.*)", taint) for taint in self.taints]
        return tuple({"key": part[1], "value": part[2] or "", "effect": part[3]} for part in parts if part)

    @property
    def address(self) -> str:
        """The address of the node."""
        return str(ipaddress.ip_address(self.cluster.node_address) + self.number - 1)

    @property
    def state(self) -> Path:
        """As the property of the cluster, but without logs, which are with those of the cluster."""
        return self.cluster.state if self.is_first else self.cluster.state / "nodes" / self.name

    @property
    def run(self) -> Path:
        """As the property of the cluster."""
        return self.cluster.run if self.is_first else self.cluster.run / "nodes" / self.name

    @property
    def pod_logs(self) -> Path:
        """The logs of the node's pods. Not shared, because a kubelet removes the logs of pods of other nodes."""
        return self.cluster.log / ("pods" if self.is_first else f"pods-{self.name}")

    @property
    def cgroup(self) -> str:
        """The cgroup of the node's pods; that of an additional node is below that of the first."""
        return self.cluster.interface if self.is_first else f"{self.cluster.interface}/{self.name}"

    def component(self, program: str) -> str:
        """The name of the component that is `program` of this node."""
        return program if self.is_first else f"{program}-{self.name}"
