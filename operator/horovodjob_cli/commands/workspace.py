"""`hvj workspace`: namespaces. hvj deletes only namespaces with its own label."""

from typing import Annotated, Any

import typer

from horovodjob.batchai import names
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import wait_for_namespace_deletion
from horovodjob.client.errors import ClientError, NotFound
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob_cli.commands import command, confirm, group
from horovodjob_cli.options import NoWait, Timeout, Yes

LABEL = "horovodjob.dev/workspace"
TABLE = {"Name": "name", "Namespace": "namespace", "State": "provisioningState", "Created": "creationTime"}
Workspace = Annotated[
    str, typer.Option("--workspace", "-w", "--name", "-n", help="Name of the workspace.", show_default=False)
]
app = group("Workspaces: namespaces for experiments and jobs.")


@command(app, "create", table=TABLE)
def create(
    workspace: Workspace, location: Annotated[str | None, typer.Option("--location", "-l", hidden=True)] = None
) -> Any:
    """Create a workspace, or show it if it exists."""
    from kubernetes.client import ApiException

    name = kube.namespace(workspace)
    metadata: dict[str, Any] = {"name": name, "labels": {LABEL: names.label_value(workspace)}}
    if name != workspace:
        metadata["annotations"] = {names.ANNOTATION_NAME: workspace}
    try:
        return _record(kube.plain(kube.core().create_namespace({"metadata": metadata})))
    except ApiException as error:
        if error.status != 409:
            raise
    existing = _namespace(workspace, name)
    if not _is_workspace(existing):
        raise ClientError(
            f"namespace {name} exists and was not created by hvj; use it unchanged with -w {name}, or label it with "
            f"`kubectl label namespace {name} {LABEL}={name}` so that hvj can also delete it"
        )
    return _record(existing)


@command(app, "list", table=TABLE)
def list_() -> Any:
    """List the workspaces that hvj has created."""
    return [_record(each) for each in kube.plain(kube.core().list_namespace(label_selector=LABEL))["items"]]


@command(app, "show", table=TABLE)
def show(workspace: Workspace) -> Any:
    """Show a workspace."""
    return _record(_namespace(workspace, kube.namespace(workspace)))


@command(app, "delete")
def delete(workspace: Workspace, yes: Yes = False, no_wait: NoWait = False, timeout: Timeout = None) -> None:
    """Delete a workspace with its experiments and jobs; files on a share remain."""
    namespace = _namespace(workspace, kube.namespace(workspace))
    name = namespace["metadata"]["name"]
    if not _is_workspace(namespace):
        raise ClientError(
            f"namespace {name} was not created by hvj, which deletes only its own; delete it with "
            f"`kubectl delete namespace {name}`"
        )
    confirm(f"Delete workspace {workspace} and everything in namespace {name}?", yes)
    kube.core().delete_namespace(name, body={"preconditions": {"uid": namespace["metadata"]["uid"]}})
    if not no_wait:
        limit = WaitLimit(timeout)
        wait_for_namespace_deletion(namespace, lambda: limit.check_time(f"workspace {workspace} was not deleted"))


def _namespace(workspace: str, name: str) -> kube.Object:
    from kubernetes.client import ApiException

    try:
        found: kube.Object = kube.plain(kube.core().read_namespace(name))
    except ApiException as error:
        if error.status != 404:
            raise
        found = {}
    if not found or not kube.has_name(found, workspace):
        raise NotFound(f"workspace {workspace} does not exist; see `hvj workspace list`")
    return found


def _is_workspace(namespace: kube.Object) -> bool:
    return LABEL in namespace["metadata"].get("labels", {})


def _record(namespace: kube.Object) -> kube.Object:
    metadata = namespace["metadata"]
    return {
        "id": f"/namespaces/{metadata['name']}",
        "name": batchai_records.display_name(namespace),
        "namespace": metadata["name"],
        "creationTime": batchai_records.creation_time(namespace),
        "provisioningState": "deleting" if metadata.get("deletionTimestamp") else "succeeded",
    }
