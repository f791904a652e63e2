"""`hvj job`: training jobs."""

import functools
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from horovodjob.api.managed_by import is_dispatched
from horovodjob.batchai.choices import CommandLineMounts
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import wait_for_deletion
from horovodjob.client.errors import ClientError, UsageError
from horovodjob.client.jobs import batchai_records, job_creation, manifests, other_cluster, owned_jobs, termination
from horovodjob.client.jobs.batchai_records import job_record, record_order
from horovodjob.client.jobs.job_times import current_time, job_times, last_events
from horovodjob.client.jobs.manifests import Overrides
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob_cli import output
from horovodjob_cli.commands import JOB_COMMANDS, CommandResult, command, confirm, group
from horovodjob_cli.display.job_wait import wait_for_end
from horovodjob_cli.options import (
    AllWorkspaces,
    ConfigFile,
    Experiment,
    Interval,
    ListedWorkspace,
    Name,
    NoWait,
    Quiet,
    Timeout,
    Variables,
    WaitStalled,
    Workspace,
    Yes,
)
from horovodjob_cli.override_options import with_overrides
from horovodjob_cli.tables import JOB_DESCRIPTION, JOB_TABLE, JOB_TABLE_OF_ALL_WORKSPACES

app = group("Training jobs, their files, logs and nodes.", JOB_COMMANDS)


class DryRun(StrEnum):
    """Kinds of dry run."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


class _CreateCommand(TyperCommand):
    """Also accepts --dry-run without a value, as kubectl does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        values = [*args, None][1:]
        bare = [each == "--dry-run" and value not in set(DryRun) for each, value in zip(args, values, strict=True)]
        args = [f"{each}=client" if alone else each for each, alone in zip(args, bare, strict=True)]
        return super().parse_args(ctx, args)


@command(app, "create", table=JOB_TABLE, cls=_CreateCommand)
@with_overrides()
def create(
    config_file: ConfigFile,
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAME", help="Name of the job, if the file has none.")
    ] = None,
    *,
    overrides: Overrides,
    env: Variables = None,
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="LocalQueue of Kueue that admits the job, instead of the file's.")
    ] = None,
    priority: Annotated[
        str | None, typer.Option(metavar="NAME", help="WorkloadPriorityClass of Kueue, instead of the file's.")
    ] = None,
    afs_name: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of the storage account to mount in addition to those of the file."),
    ] = None,
    afs_mount_path: Annotated[
        str, typer.Option(metavar="PATH", help="Mount path below $AZ_BATCHAI_JOB_MOUNT_ROOT.")
    ] = "afs",
    bfs_name: Annotated[
        str | None, typer.Option(metavar="CONTAINER", help="Blob container of the storage account to mount.")
    ] = None,
    bfs_mount_path: Annotated[
        str, typer.Option(metavar="PATH", help="Mount path below $AZ_BATCHAI_JOB_MOUNT_ROOT.")
    ] = "bfs",
    nfs: Annotated[
        str | None, typer.Option(metavar="NAME", help="File server to mount; --nfs-server sets its address.")
    ] = None,
    nfs_mount_path: Annotated[
        str, typer.Option(metavar="PATH", help="Mount path below $AZ_BATCHAI_JOB_MOUNT_ROOT.")
    ] = "nfs",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the job's end and exit with its code.")] = False,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
    quiet: Quiet = False,
    owner_job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME/UID",
            help="Kubernetes Job, such as one of a CronJob, that the job is named after and deleted with. A repeated "
            "command follows the same job.",
        ),
    ] = None,
    dry_run: Annotated[
        DryRun,
        typer.Option(help="Create nothing: print the resource (client), or validate it with the API server (server)."),
    ] = DryRun.NONE,
) -> Any:
    """Create a job from Batch AI's job.json, or from a HorovodJob in YAML or JSON."""
    owner = owned_jobs.parsed_owner(owner_job, name)
    stalled_seconds = owned_jobs.STALLED_SECONDS if owner else None
    limit = WaitLimit(timeout, waits_for_stalled=wait_stalled, stalled_seconds=stalled_seconds)
    named = replace(
        overrides,
        name=name or (owner.name if owner else None),
        mounts=CommandLineMounts(afs_name, afs_mount_path, bfs_name, bfs_mount_path, nfs, nfs_mount_path)
        if afs_name or bfs_name or nfs
        else None,
        find_key=lambda account: (
            job_creation.find_key(account, kube.namespace(overrides.namespace)) if dry_run is DryRun.NONE else None
        ),
    )

    def submission() -> manifests.Submission:
        submitted = manifests.with_variables(manifests.read(config_file, named), env)
        submitted = manifests.with_queue(submitted, queue, priority)
        for warning in submitted.warnings:
            message(f"warning: {warning}")
        return submitted

    if owner and dry_run is DryRun.NONE:
        job = owned_jobs.obtain(owner, submission, overrides.namespace, limit)
    else:
        submitted = submission()
        if dry_run is not DryRun.CLIENT:
            job_creation.check(submitted)
        if dry_run is not DryRun.NONE:
            return submitted.job
        job = job_creation.create(submitted)
    if not wait:
        return job_record(job)
    end = functools.partial(wait_for_end, limit=limit, quiet=quiet)
    job = owned_jobs.follow(job, end) if owner else end(job)
    return CommandResult(job_record(job), batchai_records.exit_code(job))


@command(app, "show", table=JOB_DESCRIPTION)
def show(name: Name, workspace: Workspace = None, experiment: Experiment = None) -> Any:
    """Show a job: its state, what it waits for, its progress and its last events."""
    job, now = kube.job(name, workspace, experiment), current_time()
    cluster = None
    if is_dispatched(job["spec"]):
        cluster = other_cluster.cluster_name(job)
        message(other_cluster.sentence(job, cluster))
    record = job_record(job) | {"workerCluster": cluster or None}
    return record | job_times(job, now) | {"events": last_events(kube.events(job), now)}


@command(app, "list", table=JOB_TABLE)
def list_(
    workspace: ListedWorkspace = None,
    experiment: Experiment = None,
    all_workspaces: AllWorkspaces = False,
) -> Any:
    """List the jobs of a workspace, or of one experiment."""
    if all_workspaces and workspace is not None:
        raise UsageError("name one workspace with -w, or all with -A, not both")
    found = kube.each_job(None if all_workspaces else kube.namespace(workspace), experiment)
    now = current_time()
    records = output.Sorted((job_record(job) | job_times(job, now) for job in found), record_order)
    return CommandResult(records, table=JOB_TABLE_OF_ALL_WORKSPACES if all_workspaces else JOB_TABLE)


@command(app, "wait")
def wait(
    name: Name,
    workspace: Workspace = None,
    experiment: Experiment = None,
    interval: Interval = 15,
    timeout: Timeout = None,
    wait_stalled: WaitStalled = False,
    quiet: Quiet = False,
) -> None:
    """Wait for a job's end and exit with its exit code, or 255 if it failed without one.

    Exit with 4 if the job cannot continue until you act.
    """
    limit = WaitLimit(timeout, waits_for_stalled=wait_stalled)
    job = wait_for_end(kube.job(name, workspace, experiment), limit, quiet=quiet)
    raise typer.Exit(batchai_records.exit_code(job))


@command(app, "terminate", table=JOB_TABLE)
def terminate(
    name: Name,
    workspace: Workspace = None,
    experiment: Experiment = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
) -> Any:
    """Terminate a job; its record, logs and files remain."""
    job = kube.job(name, workspace, experiment)
    if not batchai_records.is_finished(job):
        confirm(f"Terminate job {name}?", yes)
        job = termination.terminate(job, wait=not no_wait, timeout=timeout)
    return job_record(job)


@command(app, "suspend", table=JOB_TABLE)
def suspend(name: Name, workspace: Workspace = None, experiment: Experiment = None) -> Any:
    """Delete a job's pods until it is resumed."""
    return job_record(kube.patch_job(_unfinished(name, workspace, experiment), {"runPolicy": {"suspend": True}}))


@command(app, "resume", table=JOB_TABLE)
def resume(name: Name, workspace: Workspace = None, experiment: Experiment = None) -> Any:
    """Resume a suspended job, from its last checkpoint if its program writes one."""
    return job_record(kube.patch_job(_unfinished(name, workspace, experiment), {"runPolicy": {"suspend": False}}))


@command(app, "scale", table=JOB_TABLE)
def scale(
    name: Name,
    target: Annotated[int, typer.Option("--target", "-t", min=1, help="Number of nodes.", show_default=False)],
    workspace: Workspace = None,
    experiment: Experiment = None,
) -> Any:
    """Change the number of nodes of an elastic or suspended job."""
    return job_record(kube.patch_job(_unfinished(name, workspace, experiment), {"worker": {"replicas": target}}))


def _unfinished(name: str, workspace: str | None, experiment: str | None) -> dict[str, Any]:
    job = kube.job(name, workspace, experiment)
    if batchai_records.is_finished(job):
        phase = job["status"]["phase"]
        raise ClientError(f"job {name} has ended ({phase}) and never runs again; create a job with another name")
    return job


@command(app, "delete")
def delete(
    name: Name,
    workspace: Workspace = None,
    experiment: Experiment = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    timeout: Timeout = None,
) -> None:
    """Terminate and delete a job; its files remain."""
    job = kube.job(name, workspace, experiment)
    confirm(f"Delete job {name} of workspace {job['metadata']['namespace']}?", yes)
    kube.delete_job(job)
    if not no_wait:
        limit = WaitLimit(timeout)
        wait_for_deletion(job, lambda: limit.check_time(f"job {name} and its pods were not deleted"))
