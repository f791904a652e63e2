"""`hvj doctor`: what a job needs and the cluster lacks, each with the command that mends it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from horovodjob.api.spec import HorovodJobSpec
from horovodjob_cli import kube, manifests, options
from horovodjob_cli.commands import Outcome, command
from horovodjob_cli.diagnosis import gpus, installation, namespace, network, pods, storage
from horovodjob_cli.diagnosis.facts import Facts, Forbidden, clock
from horovodjob_cli.diagnosis.finding import Finding, Result
from horovodjob_cli.errors import NotFound, UsageError

COLUMNS = {"Check": "check", "Result": "result", "Finding": "message", "Command": "command"}
Check = Callable[[Facts], Iterator[Finding]]
# In the order in which a job meets them.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("definition", installation.definition),
    ("operator", installation.operator),
    ("Pod Security", namespace.pod_security),
    ("quota", namespace.quota),
    ("GPUs", gpus.gpus),
    ("CSI driver", storage.driver),
    ("storage", storage.secrets),
    ("image", pods.image),
    ("NetworkPolicy", network.network_policies),
    ("job", pods.stalled),
)
JobFile = Annotated[
    Path | None, typer.Option("--config-file", "-f", help="File with the job to check for; - is standard input.")
]
JobName = Annotated[str | None, typer.Option("--job", "-j", "--name", "-n", help="Job of the cluster to check for.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["--help", "-h"]})


@command(app, "doctor", table=COLUMNS)
def doctor(workspace: options.Workspace = None, config_file: JobFile = None, job: JobName = None) -> Outcome:
    """Report what a job needs and this cluster lacks, each with the command that mends it.

    Without a job, one with GPUs and a share on Azure Files is assumed. The exit code is 1 if anything blocks a job.
    """
    facts = gathered(workspace, config_file, job)
    findings = [finding for name, check in CHECKS for finding in found(name, check, facts)]
    blocked = any(finding.result is Result.BLOCKS for finding in findings)
    return Outcome([finding.record() for finding in findings], int(blocked))


def found(name: str, check: Check, facts: Facts) -> Iterator[Finding]:
    """Findings of one check, as far as the user may read what it looks at."""
    try:
        yield from check(facts)
    except Forbidden as error:
        yield Finding(name, Result.NOT_CHECKED, str(error))


def gathered(workspace: str | None, config_file: Path | None, job: str | None) -> Facts:
    """What the checks need to know. Raises UsageError, NotFound."""
    where = kube.namespace(workspace)
    document: dict[str, Any] | None = None
    secrets: tuple[dict[str, Any], ...] = ()
    if config_file is not None:
        # The name of a job.json stands on the command line of `job create`.
        submission = manifests.read(config_file, manifests.Overrides(name=job, workspace=workspace))
        document, secrets = submission.job, submission.secrets
        where = document["metadata"]["namespace"]
    elif job is not None:
        document = job_of_cluster(job, where)
    return Facts(where, document, spec_of(document) if document else None, secrets, clock())


def job_of_cluster(name: str, namespace: str) -> dict[str, Any] | None:
    """The job; None where the cluster does not know jobs at all, which a check reports. Raises NotFound."""
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
