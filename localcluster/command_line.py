"""The commands of `python3 localcluster`."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from localcluster.binaries.cache import CLUSTER, Binaries
from localcluster.control_plane.standalone import ControlPlane
from localcluster.errors import ClusterError
from localcluster.health import problems
from localcluster.lifecycle import LocalCluster
from localcluster.machine.requirements import check_machine
from localcluster.nodes.pools import DEFAULT_PREFIX, Pool, all_nodes, component_names
from localcluster.processes import Processes
from localcluster.progress import Progress
from localcluster.settings import DEFAULT_NAME, Cluster


def main() -> int:
    """Run one command. Returns the exit code, which is 0 only after success."""
    arguments = parser().parse_args()
    progress = Progress()
    try:
        cluster = Cluster(arguments.name)
        return run(arguments, cluster, progress)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; `up` and `down` continue from here", file=sys.stderr)
        return 130


def invoke(cluster: Cluster, *arguments: str) -> str:
    """The standard output of a command that runs in a process of its own. Raises CalledProcessError if it fails."""
    line = [sys.executable, str(Path(__file__).parent), "--name", cluster.name, *arguments]
    try:
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()
    except subprocess.CalledProcessError as error:
        error.add_note(error.stderr)
        raise


def run(arguments: argparse.Namespace, cluster: Cluster, progress: Progress) -> int:
    """Run the command of parsed arguments. Returns the exit code; raises ClusterError."""
    match arguments.command:
        case "check":
            check_machine(cluster, progress)
            progress.step("this machine has all that is needed")
        case "build":
            check_machine(cluster, progress)
            Binaries(cluster.cache).ensure(progress, tuple(arguments.names))
            progress.step(f"{', '.join(arguments.names) or 'all binaries'}: in {cluster.cache}/bin")
        case "download":
            Binaries(cluster.cache).download(progress, tuple(arguments.names))
        case "up":
            check_machine(cluster, progress)
            Binaries(cluster.cache).ensure(progress, CLUSTER)
            LocalCluster(cluster, progress).up()
            print(f"KUBECONFIG={cluster.kubeconfig}")
        case "down":
            LocalCluster(cluster, progress).down(purge=arguments.purge)
        case "status":
            return status(cluster)
        case "load-image":
            LocalCluster(cluster, progress).load(arguments.archives)
        case "logs":
            return logs(cluster, arguments.component, follow=arguments.follow)
        case "apiserver":
            serve_api(progress, with_controllers=arguments.controllers)
        case "gpus":
            LocalCluster(cluster, progress).advertise_gpus(arguments.count)
        case "storage":
            storage(arguments, LocalCluster(cluster, progress))
        case "nodes":
            LocalCluster(cluster, progress).resize(pool_of(arguments))
    return 0


def pool_of(arguments: argparse.Namespace) -> Pool | None:
    """The pool that the arguments describe; None if all additional nodes are to be removed."""
    if arguments.count == 0 and arguments.prefix is None:
        return None
    labels, taints = (tuple(sorted(set(given))) for given in (arguments.label, arguments.taint))
    return Pool(arguments.count, arguments.prefix or DEFAULT_PREFIX, labels, taints, arguments.gpus)


def status(cluster: Cluster) -> int:
    """Print which components run, and all problems. Returns 0 if there is none."""
    processes = Processes(cluster)
    for name in component_names(cluster):
        pid = processes.pid(name)
        print(f"{name:<26}{f'runs (process {pid})' if pid else 'does not run'}")
    if found := problems(cluster):
        print(f"cluster {cluster.name!r} is not healthy:", *found, sep="\n- ")
        return 1
    ready = ", ".join(node.name for node in all_nodes(cluster))
    print(f"cluster {cluster.name!r} is healthy: Ready is {ready}; the DNS answers")
    print(f"KUBECONFIG={cluster.kubeconfig}")
    return 0


def logs(cluster: Cluster, component: str | None, *, follow: bool) -> int:
    """Print the end of the log of one component, or of all logs. Raises ClusterError."""
    known = component_names(cluster)
    if component and component not in known:
        raise ClusterError(f"{component!r} is not a component; there are {', '.join(known)}")
    files = [cluster.log / f"{name}.log" for name in ([component] if component else known)]
    present = [str(file) for file in files if file.exists()]
    if not present:
        raise ClusterError(f"there are no logs in {cluster.log}")
    command = ["tail", "-n100" if component else "-n10", *(["-F"] if follow else []), *present]
    return subprocess.run(command, check=False).returncode


def storage(arguments: argparse.Namespace, cluster: LocalCluster) -> None:
    """Run a command of storage accounts; only results are printed to standard output."""
    name, share = getattr(arguments, "account", ""), getattr(arguments, "share", None)
    with cluster.storage() as accounts:
        match arguments.action:
            case "create":
                print(accounts.create_account(name).key)
                for one in arguments.shares:
                    accounts.create_share(name, one)
            case "list":
                for account in accounts.accounts():
                    state = "blocked" if account.blocked else "runs" if account.runs else "stopped"
                    print(account.name, state, *accounts.shares(account.name))
            case "rotate-key":
                print(accounts.rotate_key(name))
            case "allow":
                accounts.allow(name, arguments.client_id)
            case "remove" if share:
                accounts.remove_share(name, share)
            case "remove":
                accounts.remove_account(name)
            case "start" | "stop" | "block" | "unblock":
                getattr(accounts, arguments.action)(name)


def serve_api(progress: Progress, *, with_controllers: bool) -> None:
    """Run an API server without nodes until Ctrl-C."""
    with ControlPlane(controllers=with_controllers) as control_plane:
        print(f"KUBECONFIG={control_plane.kubeconfig}", flush=True)
        progress.step("serving until Ctrl-C")
        control_plane.wait()


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="python3 localcluster", description="A real Kubernetes on this machine.")
    parser.add_argument("--name", default=DEFAULT_NAME, help="name of the cluster; several can run at the same time")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="report what this machine lacks, and install missing Debian packages")
    build = commands.add_parser("build", help="build the binaries that are not in the cache")
    download = commands.add_parser("download", help="download the Go modules that `build` compiles; works without root")
    for command in (build, download):
        command.add_argument("names", nargs="*", metavar="NAME", help="a group of binaries, or a binary (default: all)")
    commands.add_parser("up", help="start the cluster, or the parts of it that do not run")
    down = commands.add_parser("down", help="stop the cluster; images and logs remain in the cache")
    down.add_argument("--purge", action="store_true", help="remove images and logs as well")
    commands.add_parser("status", help="print what runs; exit code 0 if the cluster is healthy")
    load = commands.add_parser("load-image", help="import docker-archives or OCI archives")
    load.add_argument("archives", nargs="+", type=Path, metavar="TAR")
    shown = commands.add_parser("logs", help="print the end of the logs of components")
    shown.add_argument("component", nargs="?")
    shown.add_argument("-f", "--follow", action="store_true")
    gpus = commands.add_parser("gpus", help="let the first node advertise N GPUs that it does not have")
    gpus.add_argument("count", type=int, metavar="N")
    nodes = commands.add_parser("nodes", help="set the number of additional nodes; 0 removes all")
    nodes.add_argument("count", type=int, metavar="N")
    nodes.add_argument("--prefix", help=f"of the names; N counts the nodes with it (default: {DEFAULT_PREFIX})")
    nodes.add_argument("--label", action="append", default=[], type=label, metavar="KEY=VALUE")
    nodes.add_argument("--taint", action="append", default=[], type=taint, metavar="KEY=VALUE:EFFECT")
    nodes.add_argument("--gpus", type=int, default=0, metavar="N", help="number of GPUs that each of them advertises")
    add_storage(commands.add_parser("storage", help="change storage accounts of Azure Files, each with an SMB server"))
    api = commands.add_parser("apiserver", help="run etcd and an API server without nodes, in the foreground")
    api.add_argument("--controllers", action="store_true", help="with the controller manager")
    return parser


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Add the commands of storage accounts."""
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="print each account with its state and shares")
    for action, text in {
        "create": "create an account and shares that do not exist; prints the key of the account",
        "remove": "remove a share, or an account with all its shares",
        "rotate-key": "give an account a new key, and print it",
        "allow": "let pods mount the shares of an account with an identity instead of its key",
        "stop": "kill the server of an account: connections are refused",
        "start": "start the server of an account",
        "block": "drop packets to the server of an account, as a firewall that blocks port 445",
        "unblock": "accept packets to the server of an account again",
    }.items():
        command = actions.add_parser(action, help=text)
        command.add_argument("account", metavar="ACCOUNT")
        if action == "create":
            command.add_argument("shares", nargs="*", metavar="SHARE")
        elif action == "remove":
            command.add_argument("share", nargs="?", metavar="SHARE")
        elif action == "allow":
            command.add_argument("client_id", metavar="CLIENT_ID", help="a client ID, or `kubelet`: that of the node")


def label(text: str) -> str:
    """The type of an argument that is a label: KEY=VALUE."""
    if not re.fullmatch("[^=]+=[^=]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def taint(text: str) -> str:
    """The type of an argument that is a taint: KEY=VALUE:EFFECT, or KEY:EFFECT."""
    if not re.fullmatch("[^=:]+(=[^=:]*)?:(NoSchedule|PreferNoSchedule|NoExecute)", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE:NoSchedule, :PreferNoSchedule or :NoExecute")
    return text
