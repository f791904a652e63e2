"""Batch AI's job.json, converted to a HorovodJob."""

import math
import re
from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND, LABEL_EXPERIMENT
from horovodjob.batchai.choices import Choices
from horovodjob.batchai.environment import Environment, convert_environment, path_field, require_absolute
from horovodjob.batchai.fields import FIELDS, IGNORED, warning
from horovodjob.batchai.images import convert_container, mpi_implementation
from horovodjob.batchai.mounts import Mounts, convert_mounts
from horovodjob.batchai.names import ANNOTATION_NAME, label_value, pool_name_error, resource_name
from horovodjob.batchai.preparation import convert_preparation
from horovodjob.batchai.storage_accounts import Options
from horovodjob.batchai.toolkits import MOST_NODES, Context, toolkit_program
from horovodjob.batchai.variables import GENERATED, JOB_TEMP, MOUNT, with_todays_names
from horovodjob.conversion import Conversion, ConversionError, Note, Notes, conversion
from horovodjob.document import Node, root, unknown_keys

__all__ = ["Conversion", "ConversionError", "Note", "convert"]

WEEK_SECONDS = 604800
MOST_SECONDS = 2147483647
# `7.00:00:00`, the service's own (.NET), and `7 days, 0:00:00`, which `az batchai job show` printed (Python).
CLOCK = re.compile(
    r"(?:(?P<days>\d{1,6})(?:\.|\s+days?,\s*))?(?P<hours>\d{1,6}):(?P<minutes>\d\d?):(?P<seconds>\d\d?(?:\.\d+)?)",
    re.ASCII,
)
DAYS = re.compile(r"(?P<days>\d{1,6})\s+days?", re.ASCII)
ISO_8601 = re.compile(
    r"P(?=.)(?:(?P<weeks>\d{1,6})W)?(?:(?P<days>\d{1,6}(?:\.\d+)?)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,9}(?:\.\d+)?)H)?(?:(?P<minutes>\d{1,9}(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d{1,12}(?:\.\d+)?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
UNITS = {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def convert(document: Any, *, name: str, namespace: str | None = None, choices: Choices | None = None) -> Conversion:
    """The HorovodJob of a parsed job.json, with its Secrets and warnings.

    Raises ConversionError with every problem of the document.
    """
    choices, notes = choices or Choices(), Notes()
    properties = _properties(document, notes)
    job_name = _resource_name(name, notes)
    nodes = _nodes(properties)
    environment = convert_environment(properties, job_name, namespace)
    options = Options(
        job_name, choices.storage_account, choices.storage_key, choices.nfs_servers or {}, choices.find_key
    )
    mounts = convert_mounts(properties.child("mountVolumes"), options)
    container = convert_container(
        properties, properties.child("containerSettings"), choices.image, job_name, namespace, choices.pod_security
    )
    program = toolkit_program(properties, Context(nodes, environment.variables, container.interpreter))
    spec: dict[str, Any] = {
        **container.spec,
        **_pool(properties, choices.pool),
        **_priority(properties),
        "worker": _worker(nodes, program.slots, choices.gpus, notes),
        **program.spec,
        **_mpi(properties, container.image),
        **_storage(mounts, environment),
        **convert_preparation(
            properties,
            environment.variables,
            container.image,
            pod_security=choices.pod_security,
            as_worker=choices.as_worker,
        ),
        **_logs(properties, environment.variables),
        "runPolicy": {"activeDeadlineSeconds": _deadline(properties)},
    }
    _report_unmounted(properties, mounts)
    metadata = _metadata(name, job_name, namespace, choices.experiment, notes)
    job = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    return conversion(job, [*container.secrets, *environment.secrets, *mounts.secrets(namespace)], notes)


def _properties(document: Any, notes: Notes) -> Node:
    """The job's properties, with or without the outer object; warns about unknown keys."""
    top = root(document, notes, "Batch AI's job.json")
    wrapped = top.child("properties")
    prefix = "properties." if wrapped is not None else ""
    known = {f"{prefix}{path}" for path in FIELDS} | IGNORED | {f"{prefix}{key}" for key in IGNORED}
    for path, close in unknown_keys(document, known):
        notes.warn(path, "is not a field of job.json and is ignored" + (f": is {close} meant?" if close else ""))
    if wrapped is None and top.has("properties"):
        return Node({}, "properties", notes)
    return wrapped if wrapped is not None else top


def _resource_name(name: str, notes: Notes) -> str:
    try:
        return resource_name(name)
    except ValueError as error:
        notes.refuse("--name", str(error))
        return "job"


def _metadata(name: str, job_name: str, namespace: str | None, experiment: str | None, notes: Notes) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": job_name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if experiment is not None:
        try:
            metadata["labels"] = {LABEL_EXPERIMENT: label_value(experiment)}
        except ValueError as error:
            notes.refuse("--experiment", str(error))
    return metadata | {"annotations": {ANNOTATION_NAME: name}}


def _nodes(properties: Node) -> int:
    if not properties.has("nodeCount"):
        properties.notes.refuse(properties.at("nodeCount"), "is missing: add the number of nodes")
    return properties.number("nodeCount", 1, MOST_NODES) or 1


def _worker(nodes: int, slots: int | None, gpus: int | None, notes: Notes) -> dict[str, int]:
    """Replicas, GPUs and processes of the workers, without default values."""
    if gpus is not None and gpus < 0:
        notes.refuse("--gpus", "must be 0 or more")
    count = gpus if gpus is not None else (slots or 1)
    worker = {"replicas": nodes}
    if count != 1:
        worker["gpus"] = count
    if slots is not None and (slots != max(count, 1) or slots != 1):
        worker["slots"] = slots
    return worker


def _pool(properties: Node, pool: str | None) -> dict[str, str]:
    """The node pool, from the option or the document; each is a name or an ARM ID."""
    cluster = properties.child("cluster")
    given = cluster.required_text("id") if cluster is not None else None
    where = cluster.at("id") if cluster is not None and pool is None else "--cluster"
    text = pool if pool is not None else given
    if text is None:
        return {}
    name = text.rstrip("/").rpartition("/")[2]
    if problem := pool_name_error(name):
        properties.notes.refuse(where, f"{problem}; name the pool with --cluster")
    return {"pool": name}


def _priority(properties: Node) -> dict[str, str]:
    priority = (properties.text("schedulingPriority") or "normal").lower()
    where = properties.at("schedulingPriority")
    if priority not in ("low", "normal", "high"):
        properties.notes.refuse(where, "must be low, normal or high")
    if priority == "normal":
        return {}
    name = f"horovodjob-{priority}"
    value = -1000 if priority == "low" else 1000
    properties.notes.warn(where, warning(where, name=name, value=value))
    return {"priorityClassName": name}


def _mpi(properties: Node, image: str) -> dict[str, Any]:
    """The MPI implementation, if image or preparation name one other than Open MPI."""
    preparation = properties.child("jobPreparation")
    command = preparation.text("commandLine") if preparation is not None else None
    if properties.has("customToolkitSettings"):
        return {}
    found = mpi_implementation(image, command or "")
    if found is None:
        return {}
    properties.notes.warn(
        properties.path, f"image or preparation seem to have {found}: correct spec.mpi.implementation if not"
    )
    return {"mpi": {"implementation": found}}


def _storage(mounts: Mounts, environment: Environment) -> dict[str, Any]:
    lists = {
        "env": environment.env,
        "inputs": environment.inputs,
        "outputs": environment.outputs,
        "azureFiles": mounts.azure_files,
        "volumes": mounts.volumes,
        "volumeMounts": mounts.volume_mounts,
    }
    return {key: items for key, items in lists.items() if items}


def _logs(properties: Node, variables: Mapping[str, bool]) -> dict[str, Any]:
    key = "stdOutErrPathPrefix"
    prefix = path_field(properties, key, dict.fromkeys(GENERATED[:2], True), required=True)
    if prefix is None:
        return {}
    if prefix.startswith(f"$({JOB_TEMP})"):
        properties.notes.warn(properties.at(key), warning(properties.at(key)))
        return {}
    require_absolute(properties, key, prefix)
    return {"logs": {"pathPrefix": prefix}}


def _deadline(properties: Node) -> int:
    """Time limit of the job in seconds; Batch AI's default was a week."""
    constraints = properties.child("constraints")
    text = constraints.text("maxWallClockTime") if constraints is not None else None
    if constraints is None or text is None:
        return WEEK_SECONDS
    where = constraints.at("maxWallClockTime")
    try:
        seconds = duration_seconds(text)
    except ValueError as error:
        properties.notes.refuse(where, str(error))
        return WEEK_SECONDS
    if not 1 <= seconds <= MOST_SECONDS:
        properties.notes.refuse(where, f"must be from 1 to {MOST_SECONDS} seconds")
    return seconds


def _report_unmounted(properties: Node, mounts: Mounts) -> None:
    """Warns about paths below the mount root without a mount: clusters of Batch AI had their own mounts."""
    for path, text in _texts(properties.value, properties.path):
        for relative in MOUNT.findall(with_todays_names(text)):
            if not any(f"{relative}/".startswith(f"{mount}/") for mount in mounts.paths):
                first = relative.partition("/")[0]
                properties.notes.warn(
                    path,
                    f"no entry of mountVolumes is mounted at {first}: if the cluster mounted it, add that share to "
                    f"spec.azureFiles as {{name: {first}, account: ACCOUNT, share: SHARE}}",
                )


def _texts(value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [text for key, inner in value.items() for text in _texts(inner, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list):
        return [text for index, inner in enumerate(value) for text in _texts(inner, f"{path}[{index}]")]
    return []


def duration_seconds(text: str) -> int:
    """Seconds, rounded up. Raises ValueError for any other form; months and years have no fixed length."""
    for pattern in (ISO_8601, CLOCK, DAYS):
        if match := pattern.fullmatch(text.strip()):
            parts = match.groupdict()
            return math.ceil(sum(float(parts[unit]) * size for unit, size in UNITS.items() if parts.get(unit)))
    raise ValueError("write it as P7D or PT1H30M, as 7.00:00:00, or as '7 days, 0:00:00'")
