"""`hvj job node`: the nodes and pods of a job, and commands in them."""

import sys
from typing import Annotated, Any

import typer

from horovodjob.api.constants import LABEL_ROLE, Role
from horovodjob_cli.cluster import exec as pod_exec
from horovodjob_cli.cluster import kube
from horovodjob_cli.commands import command, group
from horovodjob_cli.errors import CliError, NotFound, UsageError
from horovodjob_cli.jobs.logs import source
from horovodjob_cli.options import Experiment, JobName, Workspace

TABLE = {"ID": "nodeId", "IP": "ipAddress", "Pod": "podName", "State": "state"}
app = group("Nodes and pods of a job.")


@command(app, "list", table=TABLE)
def list_(job: JobName, workspace: Workspace = None, experiment: Experiment = None) -> Any:
    """List the pods of a job with their nodes."""
    return [_record(pod) for pod in kube.pods(kube.job(job, workspace, experiment))]


def _record(pod: kube.Object) -> kube.Object:
    metadata, status = pod["metadata"], pod.get("status", {})
    return {
        "nodeId": pod["spec"].get("nodeName"),
        "ipAddress": status.get("hostIP"),
        "podName": metadata["name"],
        "podIpAddress": status.get("podIP"),
        "role": metadata["labels"][LABEL_ROLE],
        "state": "Terminating" if metadata.get("deletionTimestamp") else status.get("phase"),
    }


@command(app, "exec")
def exec_(
    job: JobName,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND [ARGS]...]", help="Command to run, after --.")
    ] = None,
    node_id: Annotated[
        str | None,
        typer.Option("--node-id", "-n", help="Node, pod, or a name such as worker-0. Default: the first worker."),
    ] = None,
    shell_command: Annotated[
        str | None, typer.Option("--exec", help="The command as one string, which a shell parses.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input to the command.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Allocate a terminal.")] = False,
    address: Annotated[list[str] | None, typer.Option("--address", "-L", hidden=True)] = None,
    workspace: Workspace = None,
    experiment: Experiment = None,
) -> None:
    """Run a command in a container of a job and exit with its exit code."""
    if address:
        raise UsageError("hvj forwards no ports; use `kubectl port-forward POD PORT:PORT` instead of --address")
    if bool(arguments) == bool(shell_command):
        raise UsageError("name one command, as in `hvj job node exec -j JOB -- nvidia-smi`")
    if tty and not sys.stdin.isatty():
        raise UsageError("--tty needs a terminal, and standard input is not one")
    pod = _chosen(kube.job(job, workspace, experiment), node_id)
    words = arguments or ["/bin/sh", "-c", str(shell_command)]
    raise typer.Exit(pod_exec.run(pod, words, stdin=stdin, tty=tty))


def _chosen(job: kube.Object, node_id: str | None) -> kube.Object:
    name = job["metadata"]["name"]
    pods = sorted(kube.pods(job), key=lambda pod: pod["metadata"]["labels"][LABEL_ROLE] == Role.LAUNCHER)
    named = [
        pod for pod in pods if node_id in (None, pod["metadata"]["name"], source(pod), pod["spec"].get("nodeName"))
    ]
    if node_id is not None and not named:
        raise NotFound(f"job {name} has no pod {node_id} and no pod on such a node; see `hvj job node list -j {name}`")
    running = [pod for pod in named if pod.get("status", {}).get("phase") == "Running"]
    if not running:
        raise CliError(f"no pod of job {name} is running there; see `hvj job node list -j {name}`")
    return running[0]


def _names(pod: kube.Object) -> tuple[str | None, ...]:
    return pod["metadata"]["name"], source(pod), pod["spec"].get("nodeName")
