"""`hvj convert`: Batch AI's job.json, or Kubeflow's MPIJob, as YAML for `kubectl apply`. It needs no cluster."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from horovodjob.api.constants import KIND
from horovodjob.batchai.names import DNS_LABEL_LENGTH
from horovodjob.batchai.storage_accounts import KEY_PLACEHOLDER
from horovodjob.mpijob import conversion as mpijob
from horovodjob_cli.cluster import kube
from horovodjob_cli.commands import command, group
from horovodjob_cli.errors import UsageError
from horovodjob_cli.jobs import document_files, manifests
from horovodjob_cli.options import (
    AsWorker,
    Cluster,
    ConfigFile,
    Experiment,
    PodSecurityLevel,
    StorageAccountName,
    Variables,
)

app = group("Convert Batch AI's job.json or Kubeflow's MPIJob to YAML.")
Object = dict[str, Any]


@command(app, "convert")
def convert(
    config_file: ConfigFile,
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", metavar="NAME", help="Name of the job. Default: the MPIJob's, or the file's."),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            "--namespace",
            metavar="NAME",
            help="Namespace. Default: the MPIJob's, or that of kubectl's context.",
        ),
    ] = None,
    experiment: Experiment = None,
    cluster: Cluster = None,
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="Container image, instead of the file's.")] = None,
    gpus: Annotated[
        int | None, typer.Option(metavar="NUMBER", min=0, help="GPUs of each node. Default: one for each process.")
    ] = None,
    pod_security: PodSecurityLevel = None,
    as_worker: AsWorker = None,
    env: Variables = None,
    nfs_server: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:/PATH", help="Address of a file server of Batch AI today; repeatable."),
    ] = None,
    storage_account_name: StorageAccountName = None,
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
    overrides = manifests.Overrides(
        name=name,
        workspace=workspace,
        experiment=experiment,
        pool=cluster,
        image=image,
        gpus=gpus,
        pod_security=pod_security,
        as_worker=as_worker,
        storage_account=storage_account_name,
        storage_key=storage_account_key,
        nfs_servers=manifests.nfs_servers(nfs_server),
    )
    submission = manifests.with_variables(_converted(config_file, overrides), env)
    for warning in submission.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    objects = [*submission.secrets, submission.job]
    sys.stdout.write(yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=120))


def _converted(path: Path, overrides: manifests.Overrides) -> manifests.Submission:
    found = document_files.documents(path)
    if len(found) != 1:
        raise UsageError(f"{path} has {len(found)} documents; convert each from a separate file")
    (document,) = found
    if mpijob.is_mpijob(document):
        return _mpijob(path, document, overrides)
    if document.get("kind") == KIND:
        raise UsageError(f"{path} already has a HorovodJob; apply it with `kubectl apply -f {path}`")
    if "apiVersion" in document and "kind" in document:
        raise UsageError(f"{path} has kind {document['kind']}; only job.json and MPIJob can be converted")
    key = overrides.storage_key
    if key is None and KEY_PLACEHOLDER in str(document):
        key = os.environ.get("AZURE_BATCHAI_STORAGE_KEY")
    name = overrides.name or (path.stem if path.stem.strip("-") else "job")
    return manifests.batch_ai_job(path, document, replace(overrides, name=name, storage_key=key), _namespace(overrides))


def _namespace(overrides: manifests.Overrides) -> str | None:
    """The namespace of the command line; the output needs none, because kubectl sets it."""
    return kube.resource_name(overrides.workspace, DNS_LABEL_LENGTH) if overrides.workspace is not None else None


def _mpijob(path: Path, document: Object, overrides: manifests.Overrides) -> manifests.Submission:
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
        raise manifests.refused(path, error.problems) from None
    manifests.set_pod_fields(converted.job["spec"], overrides)
    return manifests.Submission(converted.job, converted.secrets, converted.warnings)
