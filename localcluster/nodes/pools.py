"""Which nodes a cluster has. The first always exists; additional ones are created on request, and saved in a file.

An additional node has a kubelet, a containerd and an address of its own, in the network namespace of the first node.
There is one bridge, one kube-proxy and one policy engine, so pods of all nodes reach each other as on one node, and a
host port of a pod is occupied on all nodes. Each node advertises all processors and all memory of this machine.
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from localcluster.errors import ClusterError
from localcluster.settings import COMPONENTS, NODE_NAME, Cluster, Node

MAXIMUM_NODES = 100
DEFAULT_PREFIX = "node"


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes with the same labels, taints and GPUs; their names are a prefix and a number."""

    count: int
    prefix: str = DEFAULT_PREFIX
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    gpus: int = 0

    def __post_init__(self) -> None:
        if self.count < 0 or self.gpus < 0:
            raise ClusterError("the numbers of nodes and of GPUs must not be negative")
        if not re.fullmatch(r"[a-z][-a-z0-9]{0,39}", self.prefix):
            raise ClusterError(
                f"prefix {self.prefix!r} must be a lower-case letter and up to 39 letters, digits, hyphens"
            )

    def has(self, node: Node) -> bool:
        """Whether the node belongs to this pool."""
        return re.fullmatch(rf"{self.prefix}\d+", node.name) is not None


def all_nodes(cluster: Cluster) -> tuple[Node, ...]:
    """The first node and the additional ones."""
    return Node(cluster), *additional_nodes(cluster)


def additional_nodes(cluster: Cluster) -> tuple[Node, ...]:
    """The additional nodes, from the file of the cluster."""
    if not cluster.nodes_file.exists():
        return ()
    records = json.loads(cluster.nodes_file.read_text())
    return tuple(
        Node(cluster, **{**record, "labels": tuple(record["labels"]), "taints": tuple(record["taints"])})
        for record in records
    )


def save_nodes(cluster: Cluster, additional: Sequence[Node]) -> None:
    """Write the list of additional nodes to the file of the cluster."""
    records = [{name: value for name, value in asdict(node).items() if name != "cluster"} for node in additional]
    if records:
        cluster.nodes_file.write_text(json.dumps(records, indent=2))
    else:
        cluster.nodes_file.unlink(missing_ok=True)


def component_names(cluster: Cluster) -> tuple[str, ...]:
    """The names of all components that a healthy cluster runs."""
    additional = additional_nodes(cluster)
    return *COMPONENTS, *(node.component(program) for node in additional for program in ("containerd", "kubelet"))


def resize(cluster: Cluster, pool: Pool) -> tuple[Node, ...]:
    """The additional nodes after a pool has got its new size; nodes of other pools do not change."""
    present = additional_nodes(cluster)
    by_name = {node.name: node for node in present}
    kept = {node.name: node for node in present if not pool.has(node)}
    numbers = (number for number in itertools.count(2) if number not in {node.number for node in present})
    names = (name for i in itertools.count(1) if (name := f"{pool.prefix}{i}") not in {NODE_NAME, *kept})
    resized = {
        name: replace(
            by_name.get(name) or Node(cluster, name, next(numbers)),
            labels=pool.labels,
            taints=pool.taints,
            gpus=pool.gpus,
        )
        for name in itertools.islice(names, pool.count)
    }
    if len(kept) + len(resized) > MAXIMUM_NODES:
        raise ClusterError(f"a cluster can have {MAXIMUM_NODES} additional nodes, not {len(kept) + len(resized)}")
    return tuple({**kept, **resized}.values())
