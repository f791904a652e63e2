"""`hvj job plot`: the curves of the trainings of jobs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob import training_history
from horovodjob.client.cluster import kube
from horovodjob.client.errors import ClientError, NotFound, UsageError
from horovodjob.client.messages import message
from horovodjob_cli.commands import command, group
from horovodjob_cli.display import plots
from horovodjob_cli.options import Experiment, Namespace, PlotOutput
from horovodjob_cli.output import Format

app = group("Curves of the training of jobs.")


@command(app, "plot")
def plot(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Names of the jobs.")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric to plot; repeatable. Default: loss and val_loss."),
    ] = None,
    namespace: Namespace = None,
    experiment: Experiment = None,
    output: PlotOutput = None,
) -> Any:
    """Plot metrics of jobs over their epochs, from the history in their status."""
    if bool(jobs) == bool(experiment):
        raise UsageError("name the jobs to plot, or an experiment with -e for all of its jobs")
    if jobs:
        found = [kube.job(name, namespace) for name in dict.fromkeys(jobs)]
    else:
        found = kube.jobs(kube.namespace(namespace), experiment)
    metrics = chosen_metrics(found, metric)
    drawn = [job for job in found if any(training_history.curve(job, name) for name in metrics)]
    if isinstance(output, Format):
        return [row for job in drawn for row in training_history.rows(job)]
    if output is not None:
        plots.write_picture(Path(output), drawn, metrics)
        message(f"wrote {output}")
        return None
    sys.stdout.write("\n\n".join(plots.text_plot(drawn, name) for name in metrics) + "\n")
    return None


def chosen_metrics(jobs: list[kube.Object], names: list[str] | None) -> list[str]:
    """The named metrics, or the losses of the jobs, or else their first metric. Raises ClientError, NotFound."""
    known = training_history.metric_names(jobs)
    if not known:
        raise ClientError(
            "no job has a history of epochs yet; the trainer, and a script with ProgressCallback, reports each epoch"
        )
    if not names:
        return [name for name in ("loss", "val_loss") if name in known] or known[:1]
    known += [
        name for name in ("learningRate", "samplesPerSecond") if any(training_history.curve(job, name) for job in jobs)
    ]
    for name in names:
        if name not in known:
            raise NotFound(f"no job has reported a metric {name}; there are: {', '.join(known)}")
    return names
