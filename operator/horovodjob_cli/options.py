"""Options of several commands, with the names of `az batchai`."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.api.constants import PodSecurity
from horovodjob_cli.output import Format

DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parsed_duration(text: str) -> float:
    """Seconds of a time such as 90, 90s, 10m or 1h30m. Raises BadParameter."""
    found = DURATION.fullmatch(text.strip())
    if not text.strip() or found is None:
        raise typer.BadParameter(f"{text!r} is not a time, such as 90, 90s, 10m or 1h30m")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


Name = Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="Name of the resource.", show_default=False)]
JobName = Annotated[str, typer.Option("--job", "-j", metavar="NAME", help="Name of the job.", show_default=False)]


def _namespace(*names: str, default: str = "that of the kubeconfig's context") -> Any:
    return typer.Option(*names, metavar="NAME", help=f"Namespace. Default: {default}.")


Namespace = Annotated[str | None, _namespace("--namespace", "--workspace", "-w")]
NamespaceOfFile = Annotated[
    str | None,
    _namespace("--namespace", "--workspace", "-w", default="the file's, or that of the kubeconfig's context"),
]
# The same in the commands of Batch AI.
Workspace = Annotated[str | None, _namespace("--workspace", "-w", "--namespace")]
# -n is the namespace where no name can be meant, as kubectl has it.
ListedWorkspace = Annotated[str | None, _namespace("--workspace", "-w", "--namespace", "-n")]
AllWorkspaces = Annotated[
    bool, typer.Option("--all-workspaces", "--all-namespaces", "-A", help="The jobs of all namespaces.")
]
Experiment = Annotated[str | None, typer.Option("--experiment", "-e", metavar="NAME", help="Name of the experiment.")]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", metavar="POOL", help="Node pool that runs the job.")]
ResourceGroup = Annotated[
    str | None, typer.Option("--resource-group", "-g", metavar="NAME", help="Azure resource group of the AKS cluster.")
]
Subscription = Annotated[
    str | None, typer.Option("--subscription", metavar="ID", help="Azure subscription of the AKS cluster.")
]
ConfigFile = Annotated[
    Path,
    typer.Option(
        *("--config-file", "-f"), metavar="FILE", help="File with the job; - is standard input.", show_default=False
    ),
]
StorageAccountName = Annotated[
    str | None,
    typer.Option(
        "--storage-account-name",
        metavar="NAME",
        envvar="AZURE_BATCHAI_STORAGE_ACCOUNT",
        help="Azure storage account of the share.",
    ),
]
StorageAccountKey = Annotated[
    str | None,
    typer.Option(
        "--storage-account-key",
        metavar="KEY",
        envvar="AZURE_BATCHAI_STORAGE_KEY",
        help="Key of the storage account; prefer the environment, because process lists show options.",
        show_default=False,
    ),
]
ImageOfFile = Annotated[
    str | None, typer.Option("--image", metavar="IMAGE", help="Container image, instead of the file's.")
]
GpusOfFile = Annotated[
    int | None,
    typer.Option("--gpus", metavar="NUMBER", min=0, help="GPUs of each node. Default: one for each process."),
]
FileServers = Annotated[
    list[str] | None,
    typer.Option(
        "--nfs-server", metavar="NAME=HOST:/PATH", help="Address of a file server of Batch AI today; repeatable."
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="Environment variable of every rank; repeatable."),
]
PodSecurityLevel = Annotated[
    PodSecurity | None,
    typer.Option(
        "--pod-security",
        case_sensitive=False,
        help="Pod Security level of the pods, instead of the file's. Default for a job.json: Baseline, because Batch "
        "AI ran containers as root; Restricted for the trainer image.",
    ),
]
AsWorker = Annotated[
    bool | None,
    typer.Option(
        "--as-worker/--no-as-worker",
        help="Whether the launcher hosts ranks (launcher.asWorker), instead of the file's. Default for a job.json: "
        "only if its preparation installs MPI or ssh, or it has customToolkitSettings.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for the operation to end.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=parsed_duration,
        help="Exit with 5 if the end has not come within this time, such as 90, 90s, 10m or 1h30m. Default: no limit.",
        show_default=False,
    ),
]
WaitStalled = Annotated[
    bool,
    typer.Option(
        "--wait-stalled",
        help="Wait also for a job that cannot continue until you act. Default: exit with 4 after 15 s.",
    ),
]
Raw = Annotated[
    bool,
    typer.Option(
        "--raw",
        help="Show the output as the program writes it: control characters, which can control the terminal, and all "
        "states of a progress bar.",
    ),
]
Interval = Annotated[
    float,
    typer.Option(
        "--interval", metavar="SECONDS", min=0, help="Accepted for old scripts and ignored; hvj does not poll."
    ),
]

# Options of every command.
Output = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="Format of the data: json, jsonc, yaml, table, tsv or none. Default: table on a terminal, else json.",
    ),
]
PlotOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT|FILE",
        parser=lambda text: Format(text) if text in set(Format) else text,
        help="Write a file: .png, .svg, .pdf or .html. Or print data: json, jsonc, yaml, table, tsv or none.",
    ),
]
Query = Annotated[
    str | None, typer.Option("--query", metavar="JMESPATH", help="Print only what this expression selects.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file to use instead of the default.")
]
KubeContext = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
IgnoredText = Annotated[str | None, typer.Option("--resource-group", "-g", hidden=True)]
IgnoredSubscription = Annotated[str | None, typer.Option("--subscription", hidden=True)]
Verbose = Annotated[bool, typer.Option("--verbose", "--only-show-errors", hidden=True)]


def shared(
    output: Output = None,
    query: Query = None,
    debug: Debug = False,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    resource_group: IgnoredText = None,
    subscription: IgnoredSubscription = None,
    verbose: Verbose = False,
) -> None:
    """The options of every command; the last three are accepted and ignored by commands that do not use them."""


def with_options(
    function: Callable[..., Any],
    name: str,
    options: Mapping[str, inspect.Parameter],
    value: Callable[..., Any],
    *,
    at_end: bool = False,
) -> Callable[..., Any]:
    """The function with `options` in place of its parameter `name`, which gets the `value` that they make."""
    own = dict(inspect.signature(function, eval_str=True).parameters)

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        given = {each: values.pop(each) for each in options}
        return function(**{name: value(**given)}, **values)

    if at_end:
        own[name] = own.pop(name)
    parameters = [new for each in own.values() for new in (options.values() if each.name == name else (each,))]
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return run
