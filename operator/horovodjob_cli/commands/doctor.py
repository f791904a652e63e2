"""`hvj doctor`: what a job needs and the cluster lacks, each with the command that fixes it."""

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from horovodjob.api.spec import HorovodJobSpec
from horovodjob.client.cluster import kube
from horovodjob.client.diagnosis import gpus as gpu_nodes
from horovodjob.client.diagnosis import installation, maintenance, namespace, network, pods, queues, storage
from horovodjob.client.diagnosis.cluster_facts import CheckResult, Facts, Forbidden, Outcome, current_time
from horovodjob.client.diagnosis.report import report
from horovodjob.client.errors import NotFound, UsageError
from horovodjob.client.jobs import manifests
from horovodjob.client.jobs.manifests import Overrides
from horovodjob_cli.commands import CommandResult, command
from horovodjob_cli.options import Output, Query
from horovodjob_cli.output import Format, uses_color
from horovodjob_cli.override_options import with_overrides

COLUMNS = {"Check": "check", "Result": "result", "Message": "message", "Command": "command"}
Check = Callable[[Facts], Iterator[CheckResult]]
# In the order in which they affect a job.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("definition", installation.definition),
    ("operator", installation.operator),
    ("Pod Security", namespace.pod_security),
    ("quota", namespace.quota),
    ("queue", queues.queues),
    ("GPUs", gpu_nodes.gpus),
    ("CSI driver", storage.driver),
    ("storage", storage.secrets),
    ("image", pods.image),
    ("NetworkPolicy", network.network_policies),
    ("node images", maintenance.node_images),
    ("job", pods.stalled),
)
# What the user has to do something about comes first.
SEVERITY = (Outcome.BLOCKS, Outcome.WARNING, Outcome.NOT_CHECKED, Outcome.OK)
JobFile = Annotated[
    Path | None, typer.Option("--config-file", "-f", help="File with the job to check for; - is standard input.")
]
JobName = Annotated[str | None, typer.Option("--job", "-j", "--name", "-n", help="Job of the cluster to check for.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["--help", "-h"]})


@command(app, "doctor", table=COLUMNS)
@with_overrides(without=("experiment", "as_worker", "nfs_server"))
def doctor(
    overrides: Overrides,
    config_file: JobFile = None,
    job: JobName = None,
    output: Output = None,
    query: Query = None,
) -> CommandResult:
    """Report what a job needs and this cluster lacks, each with the command that fixes it.

    Without --job or --config-file, assume a job with GPUs and a share on Azure Files. The exit code is 1 if anything
    blocks a job. The options for the job are those of `hvj job create`.
    """
    facts = gather_facts(replace(overrides, name=job), config_file)
    results = [result for name, check in CHECKS for result in run_check(name, check, facts)]
    results.sort(key=lambda result: SEVERITY.index(result.outcome))
    blocked = any(result.outcome is Outcome.BLOCKS for result in results)
    if output in (None, Format.TABLE) and query is None and sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        sys.stdout.write(f"{report(results, columns, in_color=uses_color())}\n")
        return CommandResult(None, int(blocked))
    return CommandResult([result.record() for result in results], int(blocked))


def run_check(name: str, check: Check, facts: Facts) -> Iterator[CheckResult]:
    """Results of one check; `not checked` if the user may not read an object that it needs."""
    try:
        yield from check(facts)
    except Forbidden as error:
        yield CheckResult(name, Outcome.NOT_CHECKED, str(error))


def gather_facts(overrides: Overrides, config_file: Path | None) -> Facts:
    """The cluster and the job for the checks. Raises UsageError, NotFound."""
    where = kube.namespace(overrides.namespace)
    document: dict[str, Any] | None = None
    secrets: tuple[dict[str, Any], ...] = ()
    if config_file is not None:
        # A job.json has no name, and none is needed to check for it.
        submission = manifests.read(config_file, overrides, unnamed="job")
        document, secrets = submission.job, submission.secrets
        where = document["metadata"]["namespace"]
    elif overrides.name is not None:
        document = job_of_cluster(overrides.name, where)
    return Facts(where, document, spec_of(document) if document else None, secrets, current_time())


def job_of_cluster(name: str, namespace: str) -> dict[str, Any] | None:
    """The job; None if the cluster does not serve HorovodJobs, which a check reports. Raises NotFound."""
    from kubernetes.client import ApiException

    try:
        return kube.job(name, namespace)
    except NotFound:
        raise
    except ApiException as error:
        if error.status == 404:
            return None
        raise


def spec_of(job: dict[str, Any]) -> HorovodJobSpec:
    """The spec with its defaults. Raises UsageError that names the field."""
    try:
        return HorovodJobSpec.model_validate(job["spec"])
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in ("spec", *first["loc"]))
        raise UsageError(f"job {job['metadata']['name']}: {path}: {first['msg']}") from None
