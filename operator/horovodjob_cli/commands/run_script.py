"""`hvj run`: from a script to a trained model in one command."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from horovodjob.azurefiles.credentials import Options
from horovodjob.client.cluster import kube
from horovodjob.client.errors import UsageError
from horovodjob.client.files.file_transfers import download_to
from horovodjob.client.files.job_files import open_directory
from horovodjob.client.jobs import batchai_records
from horovodjob.client.jobs.manifests import Submission
from horovodjob.client.jobs.sweep import to_standard_error
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import Display, message
from horovodjob.client.runs import execution
from horovodjob.client.runs import sweep as sweeps
from horovodjob.client.runs.job_manifest import OUTPUT, submission
from horovodjob.client.runs.local import run_here
from horovodjob.client.runs.options import RunOptions, SweepOptions
from horovodjob.client.runs.request import RunRequest
from horovodjob_cli.account_options import with_account
from horovodjob_cli.commands import command, group
from horovodjob_cli.commands.attach import advice, advice_on_interrupt
from horovodjob_cli.commands.sweep import TABLE, followed
from horovodjob_cli.display.job_output import show_output
from horovodjob_cli.display.transfer_bars import TerminalDisplay
from horovodjob_cli.options import Namespace, Raw, Timeout, WaitStalled
from horovodjob_cli.output import yaml_text
from horovodjob_cli.run_options import with_run_options, with_sweep_options

app = group("Run a script as a job.")
# Programs that start several processes of a training, as mpirun of the job does already.
STARTERS = ("torchrun", "horovodrun", "mpirun", "mpiexec", "accelerate", "deepspeed")
COMMAND_FOLLOWS = "--command-follows"
MODULE_OPTIONS = ("-m", "--module")


class ProgramCommand(TyperCommand):
    """A command line whose options end with the program: a script, `-m MODULE`, or `--` before any command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Marks `--`, which click drops, and ends the options after the module."""
        flags = {name for each in self.params if getattr(each, "is_flag", False) for name in each.opts}
        position = 0
        while position < len(args) and args[position].startswith("-"):
            name, equals, _ = args[position].partition("=")
            if name == "--":
                args = [*args[:position], COMMAND_FOLLOWS, *args[position:]]
                break
            is_attached = bool(equals) or (name[:2] != "--" and len(name) > 2)  # such as -nNAME
            position += 1 if is_attached or name in flags else 2
            if position <= len(args) and (name in MODULE_OPTIONS or name[:2] == "-m"):
                args = [*args[:position], "--", *args[position:]]
                break
        return super().parse_args(ctx, args)


@command(app, "run", table=TABLE, cls=ProgramCommand, context_settings={"allow_interspersed_args": False})
@with_account
@with_run_options
@with_sweep_options()
def run(
    account: Options,
    options: RunOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT|-m MODULE|-- COMMAND [ARGUMENTS]...",
            help="Script of the directory, module or any command, and its arguments.",
        ),
    ] = None,
    command_follows: Annotated[bool, typer.Option(COMMAND_FOLLOWS, hidden=True)] = False,
    source: Annotated[
        str | None, typer.Option("--from", metavar="JOB", help="Run this job again, with other arguments or options.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Run the script on this machine, with mpirun or in a container of --image.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Create nothing: print the YAML of the job and its code.")
    ] = False,
    download: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Download what the script wrote to $AZ_BATCHAI_OUTPUT_output, if it succeeds."
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the job's name and do not wait.")] = False,
    remove: Annotated[bool, typer.Option("--rm", help="Delete the job when it has ended.")] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUES",
            help="Parameter to search, such as lr=log:1e-4:1e-1 or batch=32,64: a job for each trial gets it as the "
            "argument --NAME=VALUE; repeatable.",
        ),
    ] = None,
    *,
    settings: SweepOptions,
    namespace: Namespace = None,
    raw: Raw = False,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
) -> Any:
    """Run a script with its directory as a job, show its output, and exit with its exit code.

    Ctrl-C leaves the job alone; `hvj attach` shows its further output. Options of hvj come before the script, before
    `-m MODULE`, or before `--` and any command, which each rank runs.
    """
    if remove and detach:
        raise UsageError("--rm deletes the job when hvj has seen its end, so it cannot be combined with --detach")
    if sweep and (remove or detach or download or local):
        raise UsageError(
            "--sweep follows many jobs, so it cannot be combined with --rm, --detach, --download or --local"
        )
    if local and (dry_run or detach):
        raise UsageError("--local creates no job, so it cannot be combined with --dry-run and --detach")
    share, claim = options.get("share"), options.get("claim")
    if share and claim:
        raise UsageError("--share and --claim are two places for the directory; use one of them")
    if download and not local and (detach or not (share or claim or source)):
        raise UsageError("--download needs --share or --claim, whose job has an output directory, and no --detach")
    is_script = bool(words) and not (options.get("module") or command_follows or source)
    script, arguments = words[0] if words and is_script else None, tuple(words or ())[is_script:]
    options["account"] = account
    request = RunRequest(script, arguments, options, source, is_command=command_follows and not source)
    quiet = options.get("quiet", False)
    display = TerminalDisplay(quiet=quiet)
    if request.is_command and request.args and not quiet and not dry_run:
        message(_command_text(request), end="")
    if local:
        raise typer.Exit(run_here(request, download, display))
    namespace, limit = kube.namespace(namespace), WaitLimit(timeout, waits_for_stalled=wait_stalled)
    if sweep:
        return _sweep(request, namespace, sweep, settings, limit, display, dry_run=dry_run)
    if settings:
        raise UsageError(f"--{next(iter(settings))} has an effect only with --sweep")
    if dry_run:
        sys.stdout.write(_yaml(submission(request, namespace)))
        return None
    job = execution.create(request, namespace, limit, display)
    if detach:
        sys.stdout.write(f"{batchai_records.display_name(job)}\n")
        if not quiet:
            message(advice(job), end="")
        return None
    with advice_on_interrupt(job):
        display.message(f"created job {batchai_records.display_name(job)} in namespace {namespace}")
        ended = show_output(job, limit, quiet=quiet, raw=raw)
    code = batchai_records.exit_code(ended)
    if download and code == 0:
        with open_directory(ended, OUTPUT, ".", account, limit) as place:
            download_to(download, place.store, place.path, name=OUTPUT, display=display)
    if remove:
        kube.delete_job(ended)
    raise typer.Exit(code)


def _command_text(request: RunRequest) -> str:
    """What each rank runs, for a command that can be one which starts ranks itself."""
    ranks = request.local_ranks
    text = f"{f'each of {ranks} ranks' if ranks > 1 else 'one rank'} runs: {shlex.join(request.args)}\n"
    if (name := PurePath(request.args[0]).name) in STARTERS:
        text += f"{name} starts processes itself, once in each rank: mostly, `hvj run -- python3 ...` is meant\n"
    return text


def _yaml(made: Submission) -> str:
    """All objects of the job as YAML documents, in the order in which they can be applied."""
    return yaml_text([*made.secrets, *made.config_maps, made.job], width=1 << 20)


def _sweep(
    request: RunRequest,
    namespace: str,
    options: list[str],
    settings: SweepOptions,
    limit: WaitLimit,
    display: Display,
    *,
    dry_run: bool,
) -> Any:
    """The record of the best trial."""
    show: Callable[[str], None] = (lambda line: None) if display.quiet else to_standard_error
    parameters = sweeps.of_options(options)
    if dry_run:
        made, sweep = sweeps.first(request, namespace, parameters, settings, show)
        sys.stdout.write(_yaml(replace(made, job=sweep.first_job())))
        return None
    with sweeps.prepared(request, namespace, parameters, settings, show, limit, display) as running:
        return followed(running, limit)
