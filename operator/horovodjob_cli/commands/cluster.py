"""`hvj cluster`: node pools, where Batch AI had clusters."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from horovodjob.api.vocabulary import LABEL_JOB
from horovodjob_cli import aks, kube, options, pools
from horovodjob_cli.commands import command, group
from horovodjob_cli.errors import CliError, NotFound, UsageError

Object = dict[str, Any]
COLUMNS = {
    "Name": "name",
    "Resource Group": "resourceGroup",
    "Workspace": "workspace",
    "VM Size": "vmSize",
    "State": "allocationState",
    "Idle": "nodeStateCounts.idleNodeCount",
    "Running": "nodeStateCounts.runningNodeCount",
    "Preparing": "nodeStateCounts.preparingNodeCount",
    "Leaving": "nodeStateCounts.leavingNodeCount",
    "Unusable": "nodeStateCounts.unusableNodeCount",
}
NODE_COLUMNS = {"ID": "nodeId", "IP": "ipAddress", "State": "state", "GPUs": "gpus", "Jobs": "join(', ', jobs)"}

Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Label selector of the pool's nodes, on a cluster without AKS node pools."),
]
Subscription = Annotated[
    str | None,
    typer.Option(
        "--subscription",
        envvar="AZURE_SUBSCRIPTION_ID",
        help="Azure subscription of the AKS cluster. Default: the one of the nodes.",
    ),
]
ResourceGroup = Annotated[
    str | None,
    typer.Option(
        "--resource-group",
        "-g",
        envvar="AZURE_RESOURCE_GROUP",
        help="Resource group of the AKS cluster. Default: found by the nodes' resource group.",
    ),
]
AksCluster = Annotated[
    str | None,
    typer.Option(
        "--aks-cluster",
        envvar="AZURE_AKS_CLUSTER_NAME",
        help="Name of the AKS cluster. Default: found by the nodes' resource group.",
    ),
]
PoolName = Annotated[str, typer.Option("--cluster", "-c", "--name", "-n", help="Name of the pool.", show_default=False)]
Target = Annotated[
    int, typer.Option("--target", "-t", min=0, max=aks.MAX_NODES, help="Number of nodes.", show_default=False)
]
Minimum = Annotated[
    int, typer.Option("--min", min=0, max=aks.MAX_NODES, help="Least number of nodes.", show_default=False)
]
Maximum = Annotated[
    int, typer.Option("--max", min=1, max=aks.MAX_NODES, help="Greatest number of nodes.", show_default=False)
]

app = group("Clusters: pools of GPU nodes.")
node = group("Nodes of a cluster.")
app.add_typer(node, name="node")


@dataclass(frozen=True, slots=True)
class View:
    """Nodes, pods of jobs as far as the user may read them, and the AKS cluster if there is one."""

    nodes: list[Object]
    pods: list[Object]
    workspace: str
    azure: aks.ManagedCluster | None
    now: datetime

    def record(self, name: str, nodes: list[Object], pool: Any | None) -> Object:
        """A pool as `az batchai cluster show` gave it, from its nodes and its resource on Azure."""
        records = pools.node_records(nodes, self.pods, now=self.now)
        first = nodes[0] if nodes else None
        spot = pool.scale_set_priority == "Spot" if pool else first is not None and pools.is_spot(first)
        return {
            "id": pool.id if pool else None,
            "name": name,
            "resourceGroup": self.azure.group if self.azure else None,
            "workspace": self.workspace,
            "vmSize": pool.vm_size if pool else first and pools.vm_size(first),
            "vmPriority": "lowpriority" if spot else "dedicated",
            "allocationState": allocation_state(records, pool),
            "provisioningState": pool.provisioning_state.lower() if pool else None,
            "currentNodeCount": len(nodes),
            "nodeStateCounts": pools.state_counts(records),
            "scaleSettings": scale_settings(pool) if pool else None,
            "errors": [{"node": each["nodeId"], **error} for each in records for error in each["errors"]],
        }


def allocation_state(nodes: list[Object], pool: Any | None) -> str:
    """Batch AI's `steady` or `resizing`; `deleting` as its command line showed it."""
    if pool is None:
        return "resizing" if any(each["state"] in ("preparing", "leaving") for each in nodes) else "steady"
    if pool.provisioning_state == "Deleting":
        return "deleting"
    settled = pool.provisioning_state in ("Succeeded", "Failed", "Canceled")
    return "steady" if settled and (pool.count or 0) == len(nodes) else "resizing"


def scale_settings(pool: Any) -> Object:
    """Batch AI's form of what the pool has: a number of nodes or bounds."""
    if not pool.enable_auto_scaling:
        return {"manual": {"targetNodeCount": pool.count}, "autoScale": None}
    return {"manual": None, "autoScale": {"minimumNodeCount": pool.min_count, "maximumNodeCount": pool.max_count}}


@command(app, "list", table=COLUMNS)
def list_clusters(
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    selector: Selector = None,
) -> list[Object]:
    """List the pools of nodes and the states of their nodes."""
    nodes = read_nodes(selector)
    azure = aks_cluster_if_known(aks.place(nodes, subscription, resource_group, aks_cluster))
    view = seen(workspace, nodes, azure)
    resources: dict[str, Any] = {}
    if view.azure:
        resources = {pool.name: pool for pool in view.azure.pools()}
    by_pool = {selector: view.nodes} if selector else pools.pools(view.nodes)
    names = sorted(by_pool.keys() | resources.keys())
    if not names:
        warn("no node has a GPU or the label of a pool; choose nodes by --selector")
    return [view.record(name, by_pool.get(name, []), resources.get(name)) for name in names]


@command(app, "show", table=COLUMNS)
def show(
    name: options.Name,
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    selector: Selector = None,
) -> Object:
    """Show a pool and the states of its nodes."""
    nodes = read_nodes(selector)
    azure = aks_cluster_if_known(aks.place(nodes, subscription, resource_group, aks_cluster))
    view = seen(workspace, nodes, azure)
    return one_record(view, name, selector)


@command(node, "list", table=NODE_COLUMNS)
def list_nodes(
    cluster: PoolName,
    workspace: options.Workspace = None,
    selector: Selector = None,
) -> list[Object]:
    """List the nodes of a pool, their states and the jobs on them."""
    view = seen(workspace, read_nodes(selector), None)
    nodes = view.nodes if selector else pools.pools(view.nodes).get(cluster, [])
    if not nodes:
        raise not_found(cluster, view)
    return pools.node_records(nodes, view.pods, now=view.now)


@command(app, "resize", table=COLUMNS)
def resize(
    name: options.Name,
    target: Target,
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    no_wait: options.NoWait = False,
    quiet: options.Quiet = False,
) -> Object:
    """Give an AKS pool this number of nodes and end its automatic scaling."""
    azure = required_aks_cluster(aks.place(read_nodes(), subscription, resource_group, aks_cluster))
    pool = azure.pool(name)
    check_least_nodes(pool, target)

    def disable_autoscaler(pool: Any) -> None:
        pool.enable_auto_scaling, pool.min_count, pool.max_count = False, None, None

    def set_count(pool: Any) -> None:
        pool.count = target

    if pool.enable_auto_scaling:
        # Two operations: the count of a pool belongs to its autoscaler until that is disabled.
        last = no_wait and pool.count == target
        pool = changed(azure, name, disable_autoscaler, "autoscaler off", wait=not last, quiet=quiet)
    if pool.count != target:
        pool = changed(azure, name, set_count, f"{target} nodes", wait=not no_wait, quiet=quiet)
    return one_record(seen(workspace, read_nodes(), azure), name, None)


@command(app, "auto-scale", table=COLUMNS)
def auto_scale(
    name: options.Name,
    minimum: Minimum,
    maximum: Maximum,
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    no_wait: options.NoWait = False,
    quiet: options.Quiet = False,
) -> Object:
    """Let the cluster autoscaler choose the number of nodes of an AKS pool, within bounds."""
    if minimum > maximum:
        raise UsageError(f"--min {minimum} is greater than --max {maximum}")
    azure = required_aks_cluster(aks.place(read_nodes(), subscription, resource_group, aks_cluster))
    check_least_nodes(azure.pool(name), minimum)

    def bound(pool: Any) -> None:
        pool.enable_auto_scaling, pool.min_count, pool.max_count = True, minimum, maximum

    changed(azure, name, bound, f"{minimum} to {maximum} nodes", wait=not no_wait, quiet=quiet)
    return one_record(seen(workspace, read_nodes(), azure), name, None)


def seen(workspace: str | None, nodes: list[Object], azure: aks.ManagedCluster | None) -> View:
    """The view of these nodes now."""
    namespace = kube.namespace(workspace)
    now = datetime.now(UTC)  # noqa: TID251 (a command is a process of its own)
    return View(nodes, pods_of_jobs(namespace), namespace, azure, now)


def read_nodes(selector: str | None = None) -> list[Object]:
    """The nodes of the cluster."""
    return items(kube.core().list_node(label_selector=selector or "", _preload_content=False))


def aks_cluster_if_known(place: aks.Place | None) -> aks.ManagedCluster | None:
    """The AKS cluster, or None with a warning: Kubernetes alone knows most of what is shown."""
    if place is None:
        return None
    try:
        return aks.ManagedCluster(place)
    except CliError as error:
        warn(f"without Azure's view of the pools: {error}")
        return None


def required_aks_cluster(place: aks.Place | None) -> aks.ManagedCluster:
    """The AKS cluster. Raises CliError on a cluster elsewhere."""
    if place is None:
        raise CliError(
            "this cluster is not on Azure: none of its nodes has a providerID azure:///...; resize its nodes where "
            "they come from, or name an AKS cluster by --subscription, --resource-group and --aks-cluster"
        )
    return aks.ManagedCluster(place)


def pods_of_jobs(namespace: str) -> list[Object]:
    """The pods of all jobs, or of those in the namespace where the user may not read others."""
    from kubernetes.client import ApiException

    try:
        return items(kube.core().list_pod_for_all_namespaces(label_selector=LABEL_JOB, _preload_content=False))
    except ApiException as error:
        if error.status != 403:
            raise
    warn(f"you may read pods in namespace {namespace} only: nodes that run jobs of others are shown as idle")
    return items(kube.core().list_namespaced_pod(namespace, label_selector=LABEL_JOB, _preload_content=False))


def items(response: Any) -> list[Object]:
    """The objects of a list that was not made into models of the client, which takes long with many nodes."""
    found: list[Object] = json.loads(response.data)["items"]
    return found


def one_record(view: View, name: str, selector: str | None) -> Object:
    """The record of one pool. Raises NotFound."""
    nodes = view.nodes if selector else pools.pools(view.nodes).get(name, [])
    pool = None
    if view.azure:
        try:
            pool = view.azure.pool(name)
        except NotFound:
            if not nodes:
                raise
    if not nodes and pool is None:
        raise not_found(name, view)
    return view.record(name, nodes, pool)


def not_found(name: str, view: View) -> NotFound:
    """The pools that there are, and how to choose nodes without them."""
    names = ", ".join(pools.pools(view.nodes)) or "none"
    return NotFound(f"no node is in a pool named {name} (pools with nodes: {names}); choose nodes by --selector")


def check_least_nodes(pool: Any, count: int) -> None:
    """Raises UsageError where the pool cannot be that small."""
    if pool.mode == "System" and count == 0:
        raise UsageError(
            f"pool {pool.name} is a system pool, which needs at least one node; run GPU nodes in a pool of mode User"
        )


def changed(
    azure: aks.ManagedCluster, name: str, edit: Callable[[Any], None], what: str, *, wait: bool, quiet: bool
) -> Any:
    """Change the pool; its resource at the end of the operation, or at its start without `wait`."""
    with shown_progress(f"pool {name}: {what}", quiet) as progress:
        poller = azure.change(name, edit, follow=wait, busy=lambda words: progress(f"waits: {words}"))
        return azure.wait(name, poller, progress=progress) if wait else azure.pool(name)


@contextmanager
def shown_progress(title: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows the state of an operation: a live line on a terminal, a line at each change elsewhere."""
    if quiet:
        yield lambda state: None
        return
    if not sys.stderr.isatty():
        seen: list[str] = []

        def line(state: str) -> None:
            if seen[-1:] != [state]:
                seen.append(state)
                sys.stderr.write(f"{title}: {state}\n")

        yield line
        return
    from rich.console import Console

    began = time.monotonic()
    with Console(stderr=True).status(title) as status:
        yield lambda state: status.update(f"{title}: {state}, {time.monotonic() - began:.0f} s")


def warn(sentence: str) -> None:
    """A note beside the data."""
    sys.stderr.write(f"warning: {sentence}\n")
