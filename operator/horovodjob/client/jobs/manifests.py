"""Files that `job create` takes: Batch AI's job.json, and HorovodJobs with their Secrets in YAML or JSON."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from horovodjob.api.constants import API_VERSION, KIND, LABEL_EXPERIMENT, LABEL_QUEUE, LABEL_QUEUE_PRIORITY
from horovodjob.batchai import names
from horovodjob.batchai.choices import Choices, CommandLineMounts, with_mounts
from horovodjob.client.cluster import kube
from horovodjob.client.errors import UsageError
from horovodjob.client.jobs import document_files

Object = dict[str, Any]
OBJECT_NAME = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Submission:
    """A job and the Secrets and ConfigMaps that it needs."""

    job: Object
    secrets: tuple[Object, ...] = ()
    warnings: tuple[str, ...] = ()
    config_maps: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class Overrides(Choices):
    """Options of the command line that add to or replace values of the file."""

    name: str | None = None
    namespace: str | None = None
    mounts: CommandLineMounts | None = None


def read(path: Path, overrides: Overrides, *, unnamed: str | None = None) -> Submission:
    """The job of a file: Batch AI's job.json, or a HorovodJob in YAML or JSON with its Secrets.

    `unnamed` is the name of a job.json for which none is given. Raises UsageError.
    """
    found = document_files.documents(path)
    kinds = [document.get("kind") for document in found]
    if "MPIJob" in kinds:
        raise UsageError(f"{path} has an MPIJob; `hvj convert -f {path}` converts it to a HorovodJob")
    if KIND in kinds:
        return _manifest(path, found, overrides)
    if len(found) == 1 and kinds == [None]:
        named = replace(overrides, name=overrides.name or unnamed)
        return batch_ai_job(path, found[0], named, kube.namespace(overrides.namespace))
    raise UsageError(f"{path} has neither a job.json of Batch AI nor a HorovodJob, but {_listed(kinds)}")


def batch_ai_job(path: Path, document: Object, overrides: Overrides, namespace: str | None) -> Submission:
    """The job of Batch AI's job.json. Raises UsageError with all problems of the document."""
    from horovodjob.batchai.conversion import ConversionError, convert

    if overrides.name is None:
        raise UsageError("job.json does not name its job; name it with `name=`")
    if overrides.mounts:
        document = with_mounts(document, overrides.mounts, has_key=overrides.storage_key is not None)
    try:
        converted = convert(document, name=overrides.name, namespace=namespace, choices=overrides)
    except ConversionError as error:
        raise refused(path, error.problems) from None
    return Submission(converted.job, converted.secrets, converted.warnings)


def refused(path: Path, problems: Iterable[object]) -> UsageError:
    """An error with one line for each problem of a file."""
    return UsageError("\nerror: ".join(f"{path}: {problem}" for problem in problems))


def _manifest(path: Path, documents: Sequence[Object], overrides: Overrides) -> Submission:
    if overrides.mounts:
        raise UsageError(
            f"{path} is a HorovodJob; `afs_name=`, `bfs_name=` and `nfs=` add mounts to Batch AI's job.json only: "
            "write spec.azureFiles or spec.volumes"
        )
    job, *others = sorted(documents, key=lambda document: document.get("kind") != KIND)
    if wrong := [document.get("kind") for document in others if document.get("kind") != "Secret"]:
        raise UsageError(
            f"{path} has {_listed(wrong)} in addition to its HorovodJob; apply it with `kubectl apply -f {path}`"
        )
    if job.get("apiVersion") != API_VERSION:
        raise UsageError(f"{path}: apiVersion is {job.get('apiVersion')!r}; it must be {API_VERSION}")
    for field in ("metadata", "spec"):
        if not isinstance(job.get(field), dict):
            raise UsageError(f"{path}: {field} is missing, or not an object")
    name = overrides.name or job["metadata"].get("name")
    if not name:
        raise UsageError(f"{path}: metadata.name is missing; add it or name the job with `name=`")
    own = None if overrides.namespace else job["metadata"].get("namespace")
    namespace = own or kube.namespace(overrides.namespace)
    job["metadata"] |= {"name": kube.resource_name(name), "namespace": namespace}
    if name != job["metadata"]["name"]:
        job["metadata"].setdefault("annotations", {})[names.ANNOTATION_NAME] = name
    if overrides.experiment:
        job["metadata"].setdefault("labels", {})[LABEL_EXPERIMENT] = names.label_value(overrides.experiment)
    job["spec"] |= {
        field: value for field, value in (("pool", overrides.pool), ("image", overrides.image)) if value is not None
    }
    if overrides.gpus is not None:
        job["spec"].setdefault("worker", {})["gpus"] = overrides.gpus
    set_pod_fields(job["spec"], overrides)
    for secret in others:
        secret.setdefault("metadata", {})["namespace"] = namespace
    return Submission(job, tuple(others))


def set_pod_fields(spec: Object, overrides: Overrides) -> None:
    """Set the Pod Security level and launcher.asWorker, where options give them."""
    if overrides.pod_security is not None:
        spec["podSecurity"] = overrides.pod_security.value
    if overrides.as_worker is not None:
        spec["launcher"] = {**(spec.get("launcher") or {}), "asWorker": overrides.as_worker}


def with_variables(submission: Submission, options: Iterable[str] | None) -> Submission:
    """The job with environment variables, each as NAME=VALUE; they replace those with the same name.

    Raises UsageError.
    """
    given = {}
    for option in options or ():
        name, equals, value = option.partition("=")
        if not equals or not re.fullmatch(r"[-._A-Za-z][-._A-Za-z0-9]*", name):
            raise UsageError(f"`env=` {option!r} must be NAME=VALUE")
        given[name] = value
    if given:
        spec = submission.job["spec"]
        kept = [variable for variable in spec.get("env") or () if variable.get("name") not in given]
        spec["env"] = [*kept, *({"name": name, "value": value} for name, value in given.items())]
    return submission


def with_queue(submission: Submission, queue: str | None, priority: str | None) -> Submission:
    """The job with the labels of a queue and a priority of Kueue. Raises UsageError."""
    metadata = submission.job["metadata"]
    labels = dict(metadata.get("labels") or {})
    for option, label, value in (("queue", LABEL_QUEUE, queue), ("priority", LABEL_QUEUE_PRIORITY, priority)):
        if value is None:
            continue
        if not OBJECT_NAME.fullmatch(value):
            raise UsageError(
                f"`{option}=` {value!r} must be the name of an object of Kueue: at most 63 lower-case letters, digits, "
                "- and ., beginning and ending with a letter or digit"
            )
        labels[label] = value
    if priority is not None and LABEL_QUEUE not in labels:
        raise UsageError("`priority=` has an effect only in a queue: add `queue=`, or the queue's label to the file")
    if labels:
        metadata["labels"] = labels
    return submission


def nfs_servers(options: Iterable[str] | None) -> dict[str, str]:
    """Addresses by name, from the option --nfs-server. Raises UsageError."""
    servers = {}
    for option in options or ():
        name, equals, address = option.partition("=")
        if not (name and equals and ":/" in address):
            raise UsageError(f"`nfs_server=` {option!r} must be NAME=HOST:/PATH")
        servers[name] = address
    return servers


def _listed(kinds: Sequence[Any]) -> str:
    return ", ".join(str(kind or "an object without kind") for kind in kinds)
