"""A sweep of runs: jobs of one script and its directory, with other arguments each."""

import contextlib
import copy
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from horovodjob.api.constants import LABEL_EXPERIMENT
from horovodjob.batchai.names import ANNOTATION_NAME
from horovodjob.client.errors import NotFound, UsageError
from horovodjob.client.jobs import job_creation
from horovodjob.client.jobs.manifests import Submission
from horovodjob.client.jobs.sweep import Sweep, require_optuna
from horovodjob.client.jobs.sweep_records import jobs_of
from horovodjob.client.jobs.wait_limit import WaitLimit
from horovodjob.client.messages import Display
from horovodjob.client.runs import execution
from horovodjob.client.runs.job_manifest import RunSubmission, submission
from horovodjob.client.runs.options import SweepOptions, definition_fields
from horovodjob.client.runs.request import RunRequest
from horovodjob.conversion import ConversionError
from horovodjob.sweeps import definition as definitions
from horovodjob.sweeps import template
from horovodjob.sweeps.definition import Definition

Object = dict[str, Any]
ANNOTATION_USE = "horovodjob.dev/sweep-use"
DEFAULT_METRIC = "val_loss"


def of_options(options: Sequence[str]) -> dict[str, str]:
    """Values by parameter, from --sweep NAME=VALUES. Raises UsageError."""
    found: dict[str, str] = {}
    for option in options:
        name, equals, values = option.partition("=")
        name = name.strip().removeprefix("--")
        if not equals or name in found:
            problem = "names a parameter twice" if equals else "must be NAME=VALUES, such as lr=log:1e-4:1e-1"
            raise UsageError(f"`sweep=` {option!r} {problem}")
        found[name] = values
    return found


def definition(made: Submission, parameters: Mapping[str, Any], settings: SweepOptions) -> Definition:
    """The sweep of a run. Each parameter NAME is an argument --NAME=VALUE of its program. Raises UsageError."""
    metadata, spec = made.job["metadata"], template.literal(copy.deepcopy(made.job["spec"]))
    arguments = [f"--{name}=${{{name}}}" for name in parameters]
    if "script" in spec:
        spec["script"]["args"] = [*spec["script"].get("args", []), *arguments]
    elif "command" in spec:
        spec["command"] = [*spec["command"], *arguments]
    else:
        raise UsageError(
            "`sweep=` adds arguments to a program, and the job of `source=` has neither script nor command"
        )
    job = {**made.job, "metadata": {"labels": metadata.get("labels", {})}, "spec": spec}
    given = {"metric": DEFAULT_METRIC, **definition_fields(settings)}
    try:
        return definitions.parse({"name": metadata["name"], **given, "parameters": dict(parameters), "job": job})
    except ConversionError as error:
        raise UsageError("; ".join(map(str, error.problems))) from None


@contextlib.contextmanager
def prepared(
    request: RunRequest,
    namespace: str,
    parameters: Mapping[str, Any],
    settings: SweepOptions,
    show: Callable[[str], None],
    limit: WaitLimit,
    display: Display,
) -> Iterator[Sweep]:
    """The sweep of a run, whose code the cluster has. Raises ClientError, UsageError."""
    made, running = first(request, namespace, parameters, settings, show)
    job_creation.validate(replace(made, job=running.first_job()))
    execution.send_code(request, made, limit, display)
    with with_code(made, running.definition):
        yield running


def first(
    request: RunRequest,
    namespace: str,
    parameters: Mapping[str, Any],
    settings: SweepOptions,
    show: Callable[[str], None],
) -> tuple[RunSubmission, Sweep]:
    """The job of the request, and its sweep. Raises ClientError, UsageError."""
    require_optuna()  # before the cluster is asked
    made = submission(request, namespace)
    return made, Sweep(definition(made, parameters, settings), namespace, show, is_new=settings.get("new", False))


@contextlib.contextmanager
def with_code(made: Submission, sweep: Definition) -> Iterator[None]:
    """Creates the ConfigMap with the code, as part of the sweep's experiment: it is deleted with that.

    Deletes it after an error if no job of the sweep mounts it.
    """
    created = _created_code(made, sweep)
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            job_creation.delete([each for each in created if not _is_mounted(each, sweep)])
        raise


def _created_code(made: Submission, sweep: Definition) -> list[Object]:
    experiment = (made.job["metadata"].get("labels") or {}).get(LABEL_EXPERIMENT, sweep.name)
    created = []
    for each in made.config_maps:
        labels = {**each["metadata"]["labels"], LABEL_EXPERIMENT: experiment}
        metadata = {**each["metadata"], "labels": labels, "annotations": {ANNOTATION_NAME: experiment}}
        found, is_new = job_creation.obtain({**each, "metadata": metadata})
        if is_new:
            created.append(found)
            continue
        # The command that created it does not delete a ConfigMap that was changed since.
        while not job_creation.change(found, {"annotations": {ANNOTATION_USE: secrets.token_hex(8)}}):
            found, _ = job_creation.obtain({**each, "metadata": metadata})
    return created


def _is_mounted(code: Object, sweep: Definition) -> bool:
    from kubernetes.client import ApiException

    name, namespace = code["metadata"]["name"], code["metadata"]["namespace"]
    try:
        jobs = jobs_of(sweep.name, namespace)
    except NotFound:
        return False
    except ApiException as error:
        if error.status != 403:
            raise
        return False  # a sweep lists its jobs before it creates one
    volumes = [volume for job in jobs for volume in job["spec"].get("volumes", ())]
    return any(volume.get("configMap", {}).get("name") == name for volume in volumes)
