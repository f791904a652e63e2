"""`hvj convert`: Batch AI's job.json, or Kubeflow's MPIJob, as YAML for `kubectl apply`. It needs no cluster."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from horovodjob.api.constants import KIND
from horovodjob.batchai.names import DNS_LABEL_LENGTH
from horovodjob.batchai.storage_accounts import KEY_PLACEHOLDER
from horovodjob.client.cluster import kube
from horovodjob.client.errors import UsageError
from horovodjob.client.jobs import document_files, manifests
from horovodjob.client.jobs.manifests import Overrides
from horovodjob.client.messages import message
from horovodjob.mpijob import conversion as mpijob
from horovodjob_cli.commands import command, group
from horovodjob_cli.options import ConfigFile, Variables
from horovodjob_cli.output import yaml_text
from horovodjob_cli.override_options import with_overrides

app = group("Convert Batch AI's job.json or Kubeflow's MPIJob to YAML.")
Object = dict[str, Any]
LISTS = ("List", "MPIJobList")
KUBEFLOW_LABELS = "training.kubeflow.org/"


@command(app, "convert")
@with_overrides(without=("storage_account_key",))
def convert(
    config_file: ConfigFile,
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", metavar="NAME", help="Name of the job. Default: the MPIJob's, or the file's."),
    ] = None,
    *,
    overrides: Overrides,
    env: Variables = None,
    storage_account_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Key of the storage account, which is printed as a Secret. For the placeholder in the file, "
            "AZURE_BATCHAI_STORAGE_KEY has it too.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print the YAML of a job: the Secrets that the file has values for, and the HorovodJob."""
    objects: list[Object] = []
    for submission in _converted(config_file, replace(overrides, name=name, storage_key=storage_account_key)):
        with_variables = manifests.with_variables(submission, env) if submission.job.get("kind") == KIND else submission
        for warning in with_variables.warnings:
            message(f"warning: {warning}")
        objects += [*with_variables.secrets, with_variables.job]
    sys.stdout.write(yaml_text(objects, width=120))


def _converted(path: Path, overrides: Overrides) -> list[manifests.Submission]:
    found = [item for document in document_files.documents(path) for item in _items(path, document)]
    if any(map(mpijob.is_mpijob, found)):
        return _mpijobs(path, found, overrides)
    if len(found) != 1:
        raise UsageError(f"{path} has {len(found)} documents and no MPIJob; convert each from a separate file")
    (document,) = found
    if document.get("kind") == KIND:
        raise UsageError(f"{path} already has a HorovodJob; apply it with `kubectl apply -f {path}`")
    if "apiVersion" in document and "kind" in document:
        raise UsageError(f"{path} has kind {document['kind']}; only job.json and MPIJob can be converted")
    key = overrides.storage_key
    if key is None and KEY_PLACEHOLDER in str(document):
        key = os.environ.get("AZURE_BATCHAI_STORAGE_KEY")
    name = overrides.name or (path.stem if path.stem.strip("-") else "job")
    named = replace(overrides, name=name, storage_key=key)
    return [manifests.batch_ai_job(path, document, named, _namespace(overrides))]


def _items(path: Path, document: Object) -> list[Object]:
    """The objects of a list of kubectl, or the document itself."""
    if document.get("kind") not in LISTS:
        return [document]
    items = document.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UsageError(f"{path} has a {document['kind']} whose items are not a list of objects")
    return items


def _mpijobs(path: Path, documents: list[Object], overrides: Overrides) -> list[manifests.Submission]:
    """Each MPIJob as a HorovodJob, and the other objects as they are."""
    count = sum(map(mpijob.is_mpijob, documents))
    if count > 1 and overrides.name is not None:
        raise UsageError(f"{path} has {count} MPIJobs, and --name names one: convert that one from a separate file")
    result = []
    for document in documents:
        what = _name_of(document)
        if mpijob.is_mpijob(document):
            result.append(_mpijob(path, document, overrides, f"{what}: " if count > 1 else ""))
            continue
        note = f"{what} is printed unchanged"
        if KUBEFLOW_LABELS in str(document):
            note += f"; it has labels of Kubeflow's pods ({KUBEFLOW_LABELS}...), which no pod of a HorovodJob has"
        result.append(manifests.Submission(document, warnings=(note,)))
    return result


def _name_of(document: Object) -> str:
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    return f"{document.get('kind', 'an object')} {given.get('name') or given.get('generateName') or 'without a name'}"


def _namespace(overrides: Overrides) -> str | None:
    """The namespace of the command line; the output needs none, because kubectl sets it."""
    return kube.resource_name(overrides.namespace, DNS_LABEL_LENGTH) if overrides.namespace is not None else None


def _mpijob(path: Path, document: Object, overrides: Overrides, where: str) -> manifests.Submission:
    try:
        converted = mpijob.convert(
            document,
            name=overrides.name,
            namespace=_namespace(overrides),
            experiment=overrides.experiment,
            pool=overrides.pool,
            image=overrides.image,
            gpus=overrides.gpus,
        )
    except mpijob.ConversionError as error:
        raise manifests.refused(path, [f"{where}{problem}" for problem in error.problems]) from None
    manifests.set_pod_fields(converted.job["spec"], overrides)
    warnings = tuple(f"{where}{warning}" for warning in converted.warnings)
    return manifests.Submission(converted.job, converted.secrets, warnings)
