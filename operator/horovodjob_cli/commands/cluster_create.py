"""`hvj cluster create`: a node pool of an AKS cluster."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from horovodjob.batchai.names import pool_name_error
from horovodjob.client.cluster import aks, new_pools
from horovodjob.client.cluster.cluster_view import azure_view, current_view, readable_nodes, warn
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob_cli import options, output
from horovodjob_cli.commands import CommandResult, command, group
from horovodjob_cli.commands.cluster import (
    COLUMNS,
    AksCluster,
    ResourceGroup,
    Subscription,
    aks_cluster_of,
    show_progress,
)

REQUEST = output.Document({"Method": "method", "URL": "url"})
app = group("Create a node pool of an AKS cluster.")


class Priority(StrEnum):
    """Batch AI's priorities of VMs."""

    DEDICATED = "dedicated"
    LOWPRIORITY = "lowpriority"


@command(app, "create", table=COLUMNS)
def create(
    name: options.Name,
    vm_size: Annotated[
        str, typer.Option("--vm-size", "-s", metavar="SIZE", help="Azure VM size of the nodes.", show_default=False)
    ],
    target: Annotated[
        int | None,
        typer.Option(
            "--target", "-t", min=0, max=aks.MAX_NODES, help="Number of nodes; with --min and --max, at first."
        ),
    ] = None,
    minimum: Annotated[
        int | None, typer.Option("--min", min=0, max=aks.MAX_NODES, help="Minimum number of nodes of the autoscaler.")
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, max=aks.MAX_NODES, help="Maximum number of nodes of the autoscaler.")
    ] = None,
    vm_priority: Annotated[
        Priority, typer.Option(case_sensitive=False, help="lowpriority: spot nodes, which Azure can evict.")
    ] = Priority.DEDICATED,
    spot: Annotated[bool, typer.Option("--spot", help="The same as --vm-priority lowpriority.")] = False,
    subnet: Annotated[str | None, typer.Option(metavar="ID", help="ARM ID of the subnet of the nodes.")] = None,
    workspace: options.Workspace = None,
    resource_group: ResourceGroup = None,
    subscription: Subscription = None,
    aks_cluster: AksCluster = None,
    no_wait: options.NoWait = False,
    timeout: options.Timeout = None,
    quiet: options.Quiet = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Create nothing: print the request to Azure Resource Manager.")
    ] = False,
    image: Annotated[str | None, typer.Option("--image", "-i", hidden=True)] = None,
    user_name: Annotated[str | None, typer.Option("--user-name", "-u", hidden=True)] = None,
    ssh_key: Annotated[str | None, typer.Option("--ssh-key", "-k", hidden=True)] = None,
    password: Annotated[str | None, typer.Option("--password", "-p", hidden=True)] = None,
    generate_ssh_keys: Annotated[bool, typer.Option("--generate-ssh-keys", hidden=True)] = False,
) -> CommandResult:
    """Create a node pool of an AKS cluster, or do nothing if it exists with these settings.

    Nodes with GPUs have the taint sku=gpu:NoSchedule. To use GPUs, the cluster needs NVIDIA's device plugin.
    """
    if problem := pool_name_error(name):
        raise UsageError(problem)
    scale = new_pools.scale(target, minimum, maximum)
    pool = new_pools.new_pool(vm_size, scale, spot=spot or vm_priority is Priority.LOWPRIORITY, subnet=subnet)
    if image or user_name or ssh_key or password or generate_ssh_keys:
        warn("options for image, user and ssh are ignored: AKS chooses the image of nodes and needs no user")
    azure = aks_cluster_of(subscription, resource_group, aks_cluster)
    if dry_run:
        return CommandResult(azure.creation_request(name, pool), table=REQUEST)
    create_or_keep(azure, name, pool, WaitLimit(timeout), wait=not no_wait, quiet=quiet)
    return CommandResult(current_view(workspace, readable_nodes(), azure_view(azure)).named_record(name))


def create_or_keep(
    azure: aks.ManagedCluster, name: str, pool: Any, limit: WaitLimit, *, wait: bool, quiet: bool
) -> None:
    """Create the pool, or keep the existing one. Raises ClientError if that has other settings, TimedOut."""
    existing = next((each for each in azure.pools() if each.name == name), None)
    if existing is not None:
        if problem := new_pools.difference(name, existing, pool):
            raise ClientError(problem)
        if existing.provisioning_state == "Succeeded" or not wait:
            warn(f"pool {name} exists with these settings")
            return
    with show_progress(f"pool {name}: creation", limit, quiet) as progress:
        if existing is None:
            poller = azure.create(name, pool, follow=wait, busy=progress)
        else:
            # Its creation runs, or has failed: the same request waits for it, or repeats it.
            poller = azure.change(name, lambda same: None, follow=wait, busy=progress)
        if wait:
            azure.wait(name, poller, progress=progress)
