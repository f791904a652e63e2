"""The table of commands, and the code that all of them share.

The module of a group is imported when one of its commands runs, so help and version do not import the clients of
Kubernetes and Azure.
"""

import functools
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.models import ParameterInfo

from horovodjob.client import errors, messages
from horovodjob.client.cluster import kube
from horovodjob.client.messages import message
from horovodjob.escaping import escaped
from horovodjob_cli import options, output
from horovodjob_cli.commands import name_completion

Function = TypeVar("Function", bound=Callable[..., Any])


class Entry(NamedTuple):
    """A command, or a group of them: the module with its `app`, and its line in the help."""

    module: str
    summary: str


COMMANDS = {
    "run": Entry("run_script", "Run a script of a directory as a job, and show its output."),
    "attach": Entry("attach", "Show the output of a job, and exit with its exit code."),
    "workspace": Entry("workspace", "Workspaces: namespaces for experiments and jobs."),
    "experiment": Entry("experiment", "Experiments: groups of jobs."),
    "cluster": Entry("cluster", "Clusters: pools of GPU nodes."),
    "job": Entry("job", "Training jobs, their files, logs and nodes."),
    "sweep": Entry("sweep", "Sweeps: jobs with the parameters that Optuna chooses."),
    "storage": Entry("storage", "Shares, directories and files on Azure Files."),
    "cp": Entry("copy", "Copy files to a PersistentVolumeClaim, or from one."),
    "dashboard": Entry("dashboard", "Show the jobs of a cluster in the browser."),
    "convert": Entry("convert", "Convert Batch AI's job.json or Kubeflow's MPIJob to YAML."),
    "doctor": Entry("doctor", "Report what a job needs and this cluster lacks."),
    "completion": Entry("completion", "Print the completion script of a shell."),
}
# The shell sets it to request the completion of a command line.
COMPLETION_VARIABLE = "_HVJ_COMPLETE"
# Directives of Cobra's completions: whether the shell completes the names of files.
FILES, NO_FILES = 0, 4
JOB_COMMANDS = {
    "run": Entry("run_script", "Run a script of a directory as a job, and show its output."),
    "attach": Entry("attach", "Show the output of a job, and exit with its exit code."),
    "logs": Entry("job_logs", "Print the container logs of launcher and workers."),
    "top": Entry("job_top", "Show processor, memory and GPU use of the ranks."),
    "stacks": Entry("job_stacks", "Show the Python stacks of the ranks: where a training hangs."),
    "plot": Entry("job_plot", "Plot metrics of jobs over their epochs."),
    "tensorboard": Entry("job_tensorboard", "Show the event files of a job in TensorBoard."),
    "file": Entry("job_file", "Files of a job on its share, also after its pods are deleted."),
    "node": Entry("job_node", "Nodes and pods of a job."),
}
CLUSTER_COMMANDS = {"create": Entry("cluster_create", "Create a node pool of an AKS cluster.")}

# Commands of `az batchai` that have no meaning on Kubernetes, with what replaces them.
ADVICE = {
    "cluster delete": "delete the node pool with `az aks nodepool delete`, or keep it without nodes: "
    "`hvj cluster auto-scale --min 0`",
    "cluster file": "nodes keep no files of a setup task; read those of a job with `hvj job file list`",
    "file-server": "mount an NFS server, or a share of Azure Files, by spec.volumes or spec.azureFiles of the job",
    "list-usages": "quotas are those of the subscription's VM families: `az vm list-usage --location <region>`",
}


class CommandResult(NamedTuple):
    """The result of a command that prints data, with an exit code or the columns of this data."""

    data: Any
    exit_code: int = 0
    table: output.Table | None = None


class _LazyCommand(TyperCommand):
    """A placeholder for a command, which is imported when it is used."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, short_help=entry.summary)
        self._module = entry.module

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        app = importlib.import_module(f"{__name__}.{self._module}").app
        return get_command(app).make_context(*arguments, **settings)


def group(summary: str, entries: Mapping[str, Entry] | None = None, default: str | None = None) -> typer.Typer:
    """A group of commands; `entries` are those in separate modules, `default` is the one that can be left out."""

    class Group(TyperGroup):
        def __init__(self, *, commands: Mapping[str, Any], **settings: Any) -> None:
            lazy = {name: _LazyCommand(name, entry) for name, entry in (entries or {}).items()}
            super().__init__(commands={**commands, **lazy}, **settings)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if not args and not ctx.resilient_parsing:
                typer.echo(ctx.get_help(), err=True)
                raise typer.Exit(errors.UsageError.exit_code)
            if default and args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
                args = [default, *args]
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            path = args[0] if ctx.parent is None else f"{ctx.info_name} {args[0]}"
            if advice := ADVICE.get(path):
                raise errors.UsageError(f"hvj has no command {path}: {advice}")
            return super().resolve_command(ctx, args)

    return typer.Typer(
        cls=Group,
        help=summary,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def command(
    app: typer.Typer, name: str, *, table: output.Table | None = None, **settings: Any
) -> Callable[[Function], Function]:
    """Register a function as a command, with the options of all commands; what it returns is printed.

    `table` has the columns of its data; a function that returns None has no data.
    """

    def register(function: Function) -> Function:
        own = inspect.signature(function, eval_str=True).parameters
        shared = inspect.signature(options.shared, eval_str=True).parameters
        added = {key: parameter for key, parameter in shared.items() if key not in own}

        @functools.wraps(function)
        def run(**values: Any) -> None:
            try:
                # Some commands also write files, so the value of their --output can be a path.
                format_ = values["output"] if isinstance(values["output"], output.Format) else None
                printer = output.Printer(format_, values["query"])
                # A command with several contexts chooses them itself.
                context = None if "context" in own else values["context"]
                kube.refine(values["kubeconfig"], context)
                result = function(**{key: values[key] for key in own})
                data, code, columns = result if isinstance(result, CommandResult) else (result, 0, None)
                printer.write(data, columns or table)
            except Exception as error:
                if values["debug"] and not isinstance(error, typer.Exit | typer.Abort):
                    traceback.print_exc()
                raise
            if code:
                raise typer.Exit(code)

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (own | added).values()]
        for each in parameters:
            _complete_names(each)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name, **settings)(run)
        return function

    return register


def _complete_names(parameter: inspect.Parameter) -> None:
    """Let shells complete the parameter with names of the cluster's objects, if it has the name of one."""
    for declared in get_args(parameter.annotation):
        if isinstance(declared, ParameterInfo) and declared.autocompletion is None:
            declared.autocompletion = name_completion.completion_of(parameter.name)


def confirm(question: str, yes: bool) -> None:
    """Return if the user agrees. Raises UsageError if standard input is not a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise errors.UsageError("standard input is not a terminal, so this cannot be confirmed; add --yes")
    if not typer.confirm(escaped(question), err=True):
        message("nothing was changed")
        raise typer.Exit(1)


def run(arguments: list[str], program: str) -> int:
    """Run one command line and return its exit code; print an error as one sentence."""
    messages.wording = output.as_options
    root = get_command(_root())
    if COMPLETION_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
        root.main(arguments, prog_name="hvj", complete_var=COMPLETION_VARIABLE)
    try:
        with root.make_context(program, list(arguments)) as context:
            root.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        message(f"error: {usage(error, program)}")
        return error.exit_code
    except BrokenPipeError:
        raise
    except Exception as error:
        found = errors.to_client_error(error)
        debug = "; --debug shows the traceback" if isinstance(found, errors.Defect) else ""
        message(f"error: {found}{debug}")
        return found.exit_code
    return 0


def kubectl_completion(words: list[str]) -> str:
    """The completions of the last word, as kubectl reads them from `kubectl_complete-hvj`."""
    from typer._completion_classes import BashComplete

    shell = BashComplete(get_command(_root()), {}, "kubectl hvj", COMPLETION_VARIABLE)
    try:
        found = shell.get_completions(words[:-1], words[-1] if words else "")
    except Exception:  # the command itself reports its error
        found = []
    lines = [f"{each.value}\t{each.help or ''}".rstrip() for each in found]
    return "\n".join([*lines, f":{NO_FILES if found else FILES}\n"])


def usage(error: typer.TyperException, program: str) -> str:
    """The error in the command line, with the command that prints its help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else program
    words = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    return f"{words[:1].lower()}{words[1:]}; see `{path} --help`"


def _root() -> typer.Typer:
    root = group("Distributed training on Kubernetes with the commands of Azure Batch AI.", COMMANDS)

    @root.callback()
    def options_of_the_program(
        version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
        kubeconfig: options.Kubeconfig = None,
        context: options.KubeContext = None,
    ) -> None:
        kube.choose(kubeconfig, context)

    return root


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hvj {version('horovodjob')}")
        raise typer.Exit
