"""`hvj cluster`: node pools, which replace the clusters of Batch AI."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from horovodjob.client.cluster import aks, node_pools
from horovodjob.client.cluster.cluster_view import (
    ADVICE,
    azure_view,
    azure_view_if_known,
    current_view,
    readable_nodes,
    warn,
)
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob.escaping import escaped
from horovodjob_cli import options
from horovodjob_cli.commands import CLUSTER_COMMANDS, command, group
from horovodjob_cli.output import ListTable

Object = dict[str, Any]
COLUMNS = ListTable(
    {
        "Name": "name",
        "Resource Group": "resourceGroup",
        "Workspace": "workspace",
        "VM Size": "vmSize || '-'",
        "State": "allocationState || '-'",
        "Idle": "nodeStateCounts.idleNodeCount || '-'",
        "Running": "nodeStateCounts.runningNodeCount || '-'",
        "Preparing": "nodeStateCounts.preparingNodeCount || '-'",
        "Leaving": "nodeStateCounts.leavingNodeCount || '-'",
        "Unusable": "nodeStateCounts.unusableNodeCount || '-'",
    },
    wide=("Resource Group", "Workspace", "VM Size"),
)
NODE_COLUMNS = {
    "ID": "nodeId",
    "IP": "ipAddress",
    "State": "state || '-'",
    "GPUs": "gpus || '-'",
    "Jobs": "join(', ', jobs)",
}

Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Label selector of the pool's nodes, on a cluster without AKS node pools."),
]
Subscription = Annotated[
    str | None,
    typer.Option(
        "--subscription",
        envvar="AZURE_SUBSCRIPTION_ID",
        help="Azure subscription of the AKS cluster. Default: that of the nodes.",
    ),
]
ResourceGroup = Annotated[
    str | None,
    typer.Option(
        "--resource-group",
        "-g",
        envvar="AZURE_RESOURCE_GROUP",
        help="Resource group of the AKS cluster. Default: the one that owns the nodes' resource group.",
    ),
]
AksCluster = Annotated[
    str | None,
    typer.Option(
        "--aks-cluster",
        envvar="AZURE_AKS_CLUSTER_NAME",
        help="Name of the AKS cluster. Default: the one that owns the nodes' resource group.",
    ),
]
PoolName = Annotated[str, typer.Option("--cluster", "-c", "--name", "-n", help="Name of the pool.", show_default=False)]
Target = Annotated[
    int, typer.Option("--target", "-t", min=0, max=aks.MAX_NODES, help="Number of nodes.", show_default=False)
]
Minimum = Annotated[
    int, typer.Option("--min", min=0, max=aks.MAX_NODES, help="Minimum number of nodes.", show_default=False)
]
Maximum = Annotated[
    int, typer.Option("--max", min=1, max=aks.MAX_NODES, help="Maximum number of nodes.", show_default=False)
]

app = group("Clusters: pools of GPU nodes.", CLUSTER_COMMANDS)
node = group("Nodes of a cluster.")
app.add_typer(node, name="node")


@command(app, "list", table=COLUMNS)
def list_clusters(
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    selector: Selector = None,
) -> list[Object]:
    """List the pools of nodes and the states of their nodes."""
    nodes = readable_nodes(selector)
    azure = azure_view_if_known(aks.cluster_reference(nodes or [], subscription, resource_group, aks_cluster))
    view = current_view(workspace, nodes, azure)
    by_pool = {selector: view.nodes} if selector and view.sees_nodes else node_pools.pools(view.nodes)
    names = sorted(by_pool if selector else by_pool.keys() | view.azure.pools.keys())
    if not names and view.sees_nodes:
        warn("no node has a GPU or the label of a pool; select nodes with --selector")
    return [view.record(name, by_pool.get(name, [])) for name in names]


@command(app, "show", table=COLUMNS)
def show(
    name: options.Name,
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    selector: Selector = None,
) -> Object:
    """Show a pool, or a queue of Kueue in the workspace, and the states of its nodes."""
    nodes = readable_nodes(selector)
    azure = azure_view_if_known(aks.cluster_reference(nodes or [], subscription, resource_group, aks_cluster))
    return current_view(workspace, nodes, azure).pool_or_queue_record(name, selector)


@command(node, "list", table=NODE_COLUMNS)
def list_nodes(
    cluster: PoolName,
    workspace: options.Workspace = None,
    selector: Selector = None,
) -> list[Object]:
    """List the nodes of a pool, their states and the jobs on them."""
    return current_view(workspace, readable_nodes(selector)).node_records(cluster, selector)


@command(app, "resize", table=COLUMNS)
def resize(
    name: options.Name,
    target: Target,
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = None,
    quiet: options.Quiet = False,
) -> Object:
    """Set the number of nodes of an AKS pool and disable its autoscaler."""
    azure = aks_cluster_of(subscription, resource_group, aks_cluster)
    pool, limit = azure.pool(name), WaitLimit(timeout)
    check_least_nodes(pool, target)

    def disable_autoscaler(pool: Any) -> None:
        pool.enable_auto_scaling, pool.min_count, pool.max_count = False, None, None

    def set_count(pool: Any) -> None:
        pool.count = target

    if pool.enable_auto_scaling:
        # Two operations: the count cannot change while the autoscaler is enabled.
        last = no_wait and pool.count == target
        pool = change_pool(azure, name, disable_autoscaler, "autoscaler off", limit, wait=not last, quiet=quiet)
    if pool.count != target:
        pool = change_pool(azure, name, set_count, f"{target} nodes", limit, wait=not no_wait, quiet=quiet)
    return current_view(workspace, readable_nodes(), azure_view(azure)).named_record(name)


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
    timeout: options.Timeout = None,
    quiet: options.Quiet = False,
) -> Object:
    """Enable the cluster autoscaler of an AKS pool and set its limits."""
    if minimum > maximum:
        raise UsageError(f"--min {minimum} is greater than --max {maximum}")
    azure = aks_cluster_of(subscription, resource_group, aks_cluster)
    check_least_nodes(azure.pool(name), minimum)

    def bound(pool: Any) -> None:
        pool.enable_auto_scaling, pool.min_count, pool.max_count = True, minimum, maximum

    limit = WaitLimit(timeout)
    change_pool(azure, name, bound, f"{minimum} to {maximum} nodes", limit, wait=not no_wait, quiet=quiet)
    return current_view(workspace, readable_nodes(), azure_view(azure)).named_record(name)


def aks_cluster_of(subscription: str | None, group: str | None, cluster: str | None) -> aks.ManagedCluster:
    """The AKS cluster that the options name, or else that of the nodes. Raises ClientError."""
    if subscription and group and cluster:
        return aks.ManagedCluster(aks.ClusterReference(subscription, group, cluster))
    nodes = readable_nodes(warns=False)
    if nodes is None and not (subscription and cluster):
        raise ClientError(
            f"you may not list nodes: name the AKS cluster with --subscription and --aks-cluster, or {ADVICE}"
        )
    return required_aks_cluster(aks.cluster_reference(nodes or [], subscription, group, cluster))


def required_aks_cluster(place: aks.ClusterReference | None) -> aks.ManagedCluster:
    """The AKS cluster. Raises ClientError for a cluster outside of Azure."""
    if place is None:
        raise ClientError(
            "this cluster is not on Azure: none of its nodes has a providerID azure:///...; resize its node pools "
            "with its provider's tools, or name an AKS cluster with --subscription, --resource-group and --aks-cluster"
        )
    return aks.ManagedCluster(place)


def check_least_nodes(pool: Any, count: int) -> None:
    """Raises UsageError if the pool cannot be that small."""
    if pool.mode == "System" and count == 0:
        raise UsageError(
            f"pool {pool.name} is a system pool, which needs at least one node; run GPU nodes in a pool of mode User"
        )


def change_pool(
    azure: aks.ManagedCluster,
    name: str,
    edit: Callable[[Any], None],
    what: str,
    limit: WaitLimit,
    *,
    wait: bool,
    quiet: bool,
) -> Any:
    """Change the pool; its resource at the end of the operation, or at its start without `wait`. Raises TimedOut."""
    with show_progress(f"pool {name}: {what}", limit, quiet) as progress:
        poller = azure.change(name, edit, follow=wait, busy=progress)
        return azure.wait(name, poller, progress=progress) if wait else azure.pool(name)


@contextmanager
def show_progress(title: str, limit: WaitLimit, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows the state of an operation, and raises TimedOut when it is reported after the limit."""
    with _shown_states(title, quiet) as show:

        def progress(state: str) -> None:
            limit.check_time(f"{title} did not end")
            show(state)

        yield progress


@contextmanager
def _shown_states(title: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows the state of an operation: a live line on a terminal, a line at each change elsewhere."""
    if quiet:
        yield lambda state: None
        return
    if not sys.stderr.isatty():
        seen: list[str] = []

        def line(state: str) -> None:
            if seen[-1:] != [state]:
                seen.append(state)
                message(f"{title}: {state}")

        yield line
        return
    from rich.console import Console
    from rich.text import Text

    began = time.monotonic()
    with Console(stderr=True).status(Text(escaped(title))) as status:
        yield lambda state: status.update(Text(escaped(f"{title}: {state}, {time.monotonic() - began:.0f} s")))
