"""`hvj experiment`: jobs with the same label, and a ConfigMap that represents an experiment without jobs."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob import training_history
from horovodjob.api.constants import LABEL_EXPERIMENT, ExecutionState
from horovodjob.batchai import names
from horovodjob.client.cluster import kube
from horovodjob.client.cluster.watch import wait_for_deletion
from horovodjob.client.errors import ClientError, NotFound
from horovodjob.client.jobs import batchai_records, job_creation
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import message
from horovodjob.escaping import shortened
from horovodjob.training_history import Goal
from horovodjob_cli.commands import CommandResult, command, confirm, group
from horovodjob_cli.display import plots
from horovodjob_cli.options import ListedWorkspace, Name, NoWait, PlotOutput, Timeout, Workspace, Yes
from horovodjob_cli.output import Format, ShortTable

MANAGED_BY = {"app.kubernetes.io/managed-by": "hvj"}
SELECTOR = f"app.kubernetes.io/managed-by=hvj,{LABEL_EXPERIMENT}"
TABLE = {
    "Name": "name",
    "Workspace": "workspace",
    "Jobs": "jobs.total",
    "Queued": "jobs.queued",
    "Running": "jobs.running",
    "Suspended": "jobs.suspended",
    "Succeeded": "jobs.succeeded",
    "Failed": "jobs.failed",
}
app = group("Experiments: groups of jobs.")


@command(app, "create", table=TABLE)
def create(name: Name, workspace: Workspace = None) -> Any:
    """Create an experiment, or show it if it exists."""
    from kubernetes.client import ApiException

    namespace, config_map = kube.namespace(workspace), f"experiment-{kube.resource_name(name)}"
    labels = {**MANAGED_BY, LABEL_EXPERIMENT: names.label_value(name)}
    metadata = {"name": config_map, "labels": labels, "annotations": {names.ANNOTATION_NAME: name}}
    try:
        kube.core().create_namespaced_config_map(namespace, {"metadata": metadata})
    except ApiException as error:
        if error.status != 409:
            raise
        existing = kube.plain(kube.core().read_namespaced_config_map(config_map, namespace))
        if existing["metadata"].get("labels", {}).get(LABEL_EXPERIMENT) != labels[LABEL_EXPERIMENT]:
            raise ClientError(
                f"experiment {name} uses the ConfigMap {config_map}, which already belongs to experiment "
                f"{batchai_records.display_name(existing)}; choose another name"
            ) from None
    return _experiment(name, namespace)


@command(app, "list", table=TABLE)
def list_(workspace: ListedWorkspace = None) -> Any:
    """List the experiments of a workspace."""
    return list(_experiments(kube.namespace(workspace)).values())


@command(app, "show", table=TABLE)
def show(name: Name, workspace: Workspace = None) -> Any:
    """Show an experiment and how many jobs it has."""
    return _experiment(name, kube.namespace(workspace))


@command(app, "compare")
def compare(
    name: Name,
    metric: Annotated[
        str | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric to compare by. Default: val_loss, or else loss."),
    ] = None,
    goal: Annotated[
        Goal | None, typer.Option(help="Which value is the best. Default: what the programs of the jobs declare.")
    ] = None,
    workspace: Workspace = None,
    output: PlotOutput = None,
) -> Any:
    """Compare the jobs of an experiment: the best value of a metric, and the settings that differ."""
    namespace = kube.namespace(workspace)
    jobs = kube.jobs(namespace, name)
    if not jobs:
        _experiment(name, namespace)
    chosen = metric or training_history.default_metric(jobs)
    if chosen is None:
        raise ClientError(f"no job of experiment {name} has reported metrics yet")
    goal = goal or training_history.declared_goal(jobs, chosen)
    rows = training_history.comparison(jobs, chosen, goal)
    if all(row["lowest"] is None for row in rows):
        known = ", ".join(training_history.metric_names(jobs)) or "none"
        raise NotFound(f"no job of experiment {name} has reported a metric {chosen}; there are: {known}")
    if goal is None:
        message(
            f"whether a lower or a higher {chosen} is better is not known, so no job is the best: "
            "choose with --goal min or --goal max"
        )
    settings = {each: f"settings.{json.dumps(each)}" for each in rows[0]["settings"]}
    if output is None or isinstance(output, Format):
        goodput = {"Goodput %": "goodput"} if any(row["goodput"] is not None for row in rows) else {}
        columns = {"Job": "job", **_value_columns(chosen, goal), **goodput, **settings}
        return CommandResult(rows, table=ShortTable(columns))
    flat = [{"job": row["job"], **_values(row), **_shown(row["settings"])} for row in rows]
    plots.write_picture(Path(output), jobs, [chosen], flat)
    message(f"wrote {output}")
    return None


def _shown(settings: kube.Object) -> kube.Object:
    """The settings in the cells of a page."""
    return {shortened(name): None if value is None else shortened(value) for name, value in settings.items()}


def _value_columns(metric: str, goal: Goal | None) -> dict[str, str]:
    """The columns of the best values; without a goal, those of the lowest and the highest."""
    if goal is not None:
        return {metric: "best", "Epoch": "epoch"}
    return {f"lowest {metric}": "lowest.value", f"highest {metric}": "highest.value"}


def _values(row: kube.Object) -> kube.Object:
    """The values in the columns that `_value_columns` names."""
    metric = row["metric"]
    if row["goal"] is not None:
        return {metric: row["best"], "epoch": row["epoch"]}
    return {f"{end} {metric}": (row[end] or {}).get("value") for end in ("lowest", "highest")}


@command(app, "delete")
def delete(
    name: Name, workspace: Workspace = None, yes: Yes = False, no_wait: NoWait = False, timeout: Timeout = None
) -> None:
    """Terminate and delete the jobs of an experiment, and the experiment; files on a share remain."""
    namespace, label = kube.namespace(workspace), names.label_value(name)
    total = _experiment(name, namespace)["jobs"]["total"]
    confirm(f"Delete experiment {name} of workspace {namespace} and its jobs ({total})?", yes)
    # Before the jobs: those of a sweep that another command begins meanwhile have a new ConfigMap with their code.
    found = kube.core().list_namespaced_config_map(namespace, label_selector=f"{SELECTOR}={label}")
    jobs = kube.jobs(namespace, name)
    for job in jobs:
        kube.delete_job(job)
    if not no_wait:
        limit = WaitLimit(timeout)
        for job in jobs:
            wait_for_deletion(job, lambda: limit.check_time(f"the jobs of experiment {name} were not deleted"))
    job_creation.delete({**each, "kind": "ConfigMap"} for each in kube.plain(found)["items"])


def _experiment(name: str, namespace: str) -> kube.Object:
    found = _experiments(namespace).get(names.label_value(name))
    if found is None:
        raise NotFound(f"experiment {name} does not exist in workspace {namespace}; see `hvj experiment list`")
    return found


def _experiments(namespace: str) -> dict[str, kube.Object]:
    """Created experiments and those that labels of jobs name, by label."""
    config_maps = kube.plain(kube.core().list_namespaced_config_map(namespace, label_selector=SELECTOR))["items"]
    created = {each["metadata"]["labels"][LABEL_EXPERIMENT]: each for each in config_maps}
    jobs = defaultdict(list)
    for job in kube.jobs(namespace):
        if label := job["metadata"].get("labels", {}).get(LABEL_EXPERIMENT):
            jobs[label].append(job)
    return {label: _record(label, namespace, created.get(label), jobs[label]) for label in sorted({*created, *jobs})}


def _record(label: str, namespace: str, created: kube.Object | None, jobs: Sequence[kube.Object]) -> kube.Object:
    states = Counter(batchai_records.state(job.get("status", {})) for job in jobs)
    first = created or min(jobs, key=batchai_records.creation_time)
    return {
        "id": f"/namespaces/{namespace}/experiments/{label}",
        "name": batchai_records.display_name(created) if created else label,
        "workspace": namespace,
        "creationTime": batchai_records.creation_time(first),
        "provisioningState": "succeeded",
        "jobs": {
            "total": len(jobs),
            **{state: states[state] for state in (*ExecutionState, batchai_records.SUSPENDED)},
        },
    }
