"""`hvj job node`: the nodes and pods of a job, and commands in them."""

import contextlib
import sys
from typing import Annotated, Any

import typer

from horovodjob.api.constants import LABEL_ROLE, Role
from horovodjob.client.cluster import exec as pod_exec
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.port_forward import LOCAL_NAMES, forwarded_port, parse_forwarding, wait_for_pod_end
from horovodjob.client.errors import ClientError, NotFound, UsageError
from horovodjob.client.jobs import other_cluster
from horovodjob.client.jobs.logs import source
from horovodjob.client.messages import message
from horovodjob_cli.commands import command, group
from horovodjob_cli.options import Experiment, JobName, Workspace

TABLE = {"ID": "nodeId", "IP": "ipAddress", "Pod": "podName", "State": "state"}
app = group("Nodes and pods of a job.")


@command(app, "list", table=TABLE)
def list_(job: JobName, workspace: Workspace = None, experiment: Experiment = None) -> Any:
    """List the pods of a job with their nodes."""
    return [_record(pod) for pod in other_cluster.pods(kube.job(job, workspace, experiment))]


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
    address: Annotated[
        list[str] | None,
        typer.Option(
            *("--address", "-L"),
            metavar="LOCAL:[HOST:]REMOTE",
            help="Forward a port of this machine to a port of the pod, or of HOST, such as worker-1; repeatable. "
            "Without a command, until Ctrl-C.",
        ),
    ] = None,
    workspace: Workspace = None,
    experiment: Experiment = None,
) -> None:
    """Run a command in a container of a job and exit with its exit code; with -L, forward ports."""
    forwardings = [parse_forwarding(text) for text in address or []]
    if (arguments and shell_command) or not (arguments or shell_command or forwardings):
        raise UsageError("name one command, as in `hvj job node exec -j JOB -- nvidia-smi`")
    if tty and not sys.stdin.isatty():
        raise UsageError("--tty needs a terminal, and standard input is not one")
    found = kube.job(job, workspace, experiment)
    pod = _chosen(found, node_id)
    words = arguments or (["/bin/sh", "-c", shell_command] if shell_command else [])
    with contextlib.ExitStack() as stack:
        targets = []
        for each in forwardings:
            target = pod if each.host in LOCAL_NAMES else _chosen(found, each.host.partition(".")[0])
            port = stack.enter_context(forwarded_port(target, each.local, each.remote))
            message(f"localhost:{port} leads to port {each.remote} of pod {target['metadata']['name']}")
            targets.append(target)
        if words:
            raise typer.Exit(pod_exec.run(pod, words, stdin=stdin, tty=tty))
        wait_for_pod_end(targets)


def _chosen(job: kube.Object, node_id: str | None) -> kube.Object:
    name = job["metadata"]["name"]
    pods = sorted(other_cluster.pods(job), key=lambda pod: pod["metadata"]["labels"][LABEL_ROLE] == Role.LAUNCHER)
    named = [
        pod for pod in pods if node_id in (None, pod["metadata"]["name"], source(pod), pod["spec"].get("nodeName"))
    ]
    if node_id is not None and not named:
        raise NotFound(f"job {name} has no pod {node_id} and no pod on such a node; see `hvj job node list -j {name}`")
    running = [pod for pod in named if pod.get("status", {}).get("phase") == "Running"]
    if not running:
        raise ClientError(f"no pod of job {name} is running there; see `hvj job node list -j {name}`")
    return running[0]


def _names(pod: kube.Object) -> tuple[str | None, ...]:
    return pod["metadata"]["name"], source(pod), pod["spec"].get("nodeName")
