"""Which nodes a cluster is to have. The first is there always; others are asked for, and remembered in a file.

Further nodes have a kubelet, a containerd and an address of their own, in the network namespace of the first. There is
one bridge, one kube-proxy and one policy engine. So pods of all nodes reach each other as on one, and a port that a pod
has on its node is taken on all. Each node claims all processors and all memory of this machine.
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from localcluster.errors import ClusterError
from localcluster.settings import COMPONENTS, NODE_NAME, Cluster, Node

MAXIMUM_NODES = 100
DEFAULT_PREFIX = "node"


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are alike but for their names, which are a prefix with a number."""

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
        return re.fullmatch(rf"{self.prefix}\d+", node.name) is not None


def nodes(cluster: Cluster) -> tuple[Node, ...]:
    """The first node, and those beside it."""
    return Node(cluster), *further_nodes(cluster)


def further_nodes(cluster: Cluster) -> tuple[Node, ...]:
    """Those beside the first, as they were asked for."""
    if not cluster.nodes_file.exists():
        return ()
    records = json.loads(cluster.nodes_file.read_text())
    return tuple(
        Node(cluster, **{**record, "labels": tuple(record["labels"]), "taints": tuple(record["taints"])})
        for record in records
    )


def remember(cluster: Cluster, further: Sequence[Node]) -> None:
    """Let these be the further nodes."""
    records = [{name: value for name, value in asdict(node).items() if name != "cluster"} for node in further]
    if records:
        cluster.nodes_file.write_text(json.dumps(records, indent=2))
    else:
        cluster.nodes_file.unlink(missing_ok=True)


def components(cluster: Cluster) -> tuple[str, ...]:
    """All that must run, by name."""
    further = further_nodes(cluster)
    return *COMPONENTS, *(node.component(program) for node in further for program in ("containerd", "kubelet"))


def resized(cluster: Cluster, pool: Pool) -> tuple[Node, ...]:
    """The further nodes once the pool is what it is to be; those of other pools stay as they are."""
    present = further_nodes(cluster)
    known = {node.name: node for node in present}
    kept = {node.name: node for node in present if not pool.has(node)}
    numbers = (number for number in itertools.count(2) if number not in {node.number for node in present})
    names = (name for i in itertools.count(1) if (name := f"{pool.prefix}{i}") not in {NODE_NAME, *kept})
    wanted = {
        name: replace(
            known.get(name) or Node(cluster, name, next(numbers)),
            labels=pool.labels,
            taints=pool.taints,
            gpus=pool.gpus,
        )
        for name in itertools.islice(names, pool.count)
    }
    if len(kept) + len(wanted) > MAXIMUM_NODES:
        raise ClusterError(f"a cluster can have {MAXIMUM_NODES} further nodes, not {len(kept) + len(wanted)}")
    return tuple({**kept, **wanted}.values())


def node_path(node: Node) -> str:
    """Where the API has the node."""
    return f"/api/v1/nodes/{node.name}"


def node_object(node: Node) -> dict[str, Any]:
    """What is there before its kubelet, which may not give itself every label."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(label.split("=", 1) for label in node.labels)},
        "spec": {"taints": list(node.taint_objects)},
    }
