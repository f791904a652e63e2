"""The conversion of every field of job.json (API 2018-05-01): docs/job-json.md is generated from this table.

Write it again with `python -m horovodjob.batchai.fields docs/job-json.md`.
"""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

BEGIN, END = "<!-- fields: begin -->\n", "<!-- fields: end -->\n"
# Keys of the document without meaning for the job.
IGNORED = frozenset({"$schema", "location", "toolType", "type", "tags"})
SCRIPT = "pythonScriptFilePath"
KUBEFLOW = "Kubeflow Trainer"


class Outcome(StrEnum):
    """Outcome of the conversion of a field."""

    CONVERTED = "converted"
    REFUSED = "refused"
    WARNED = "warned"


def _rank_program(toolkit: str, field: str, *, processes: bool = True) -> dict[str, tuple[Outcome, str]]:
    rows = {
        f"{toolkit}.{SCRIPT}": f"`{field}`",
        f"{toolkit}.pythonInterpreterPath": f"`{field}`; default `python`",
        f"{toolkit}.commandLineArgs": f"`{field}`; shell syntax: `command: [/bin/sh, -c, ...]`",
    }
    if processes:
        rows[f"{toolkit}.processCount"] = "`worker.slots` = processCount / nodeCount, which must be a whole number"
    return {path: (Outcome.CONVERTED, text) for path, text in rows.items()}


def _refused(toolkit: str, fields: str, text: str) -> dict[str, tuple[Outcome, str]]:
    return {f"{toolkit}.{field}": (Outcome.REFUSED, text) for field in fields.split()}


FIELDS: dict[str, tuple[Outcome, str]] = {
    "schedulingPriority": (
        Outcome.CONVERTED,
        "`priorityClassName`: `horovodjob-low` or `horovodjob-high`, with a warning that the PriorityClass must exist; "
        "`normal`: nothing",
    ),
    "cluster.id": (Outcome.CONVERTED, "`pool`: the last part of the id; `--cluster` names another"),
    "nodeCount": (Outcome.CONVERTED, "`worker.replicas`"),
    "stdOutErrPathPrefix": (
        Outcome.CONVERTED,
        "`logs.pathPrefix`; a path in `$AZ_BATCHAI_JOB_TEMP` is omitted with a warning",
    ),
    "jobPreparation.commandLine": (
        Outcome.CONVERTED,
        "`preparation.command`; one that installs MPI or ssh: `launcher.asWorker`; omitted where the trainer image has "
        "all that it installs",
    ),
    "containerSettings.imageSourceRegistry.image": (
        Outcome.CONVERTED,
        "`image`, and `podSecurity: Baseline` unless it is the trainer image; `--image` names another; a warning where "
        "it needs CUDA libraries without kernels for today's GPUs",
    ),
    "containerSettings.imageSourceRegistry.serverUrl": (Outcome.CONVERTED, "the beginning of `image`"),
    "containerSettings.imageSourceRegistry.credentials.username": (
        Outcome.CONVERTED,
        "Secret `<job>-registry` and `imagePullSecrets`",
    ),
    "containerSettings.imageSourceRegistry.credentials.password": (Outcome.CONVERTED, "Secret `<job>-registry`"),
    "containerSettings.imageSourceRegistry.credentials.passwordSecretReference.sourceVault.id": (
        Outcome.WARNED,
        "not needed: the URL names the vault",
    ),
    "containerSettings.imageSourceRegistry.credentials.passwordSecretReference.secretUrl": (
        Outcome.WARNED,
        "`imagePullSecrets`; you create Secret `<job>-registry` from the key vault",
    ),
    "containerSettings.shmSize": (Outcome.CONVERTED, "`shmSize`; Docker's units are binary: `16g` is `16Gi`"),
    "inputDirectories[].id": (Outcome.CONVERTED, "`inputs[].id`"),
    "inputDirectories[].path": (Outcome.CONVERTED, "`inputs[].path`"),
    "outputDirectories[].id": (Outcome.CONVERTED, "`outputs[].id`"),
    "outputDirectories[].pathPrefix": (Outcome.CONVERTED, "`outputs[].pathPrefix`"),
    "outputDirectories[].pathSuffix": (Outcome.CONVERTED, "`outputs[].pathSuffix`"),
    "environmentVariables[].name": (Outcome.CONVERTED, "`env[].name`; `AZ_BATCHAI_*` and `HOROVODJOB_*` are refused"),
    "environmentVariables[].value": (Outcome.CONVERTED, "`env[].value`"),
    "secrets[].name": (Outcome.CONVERTED, "`env[].name`, with a `secretKeyRef`"),
    "secrets[].value": (Outcome.CONVERTED, "Secret `<job>-secrets`"),
    "secrets[].valueSecretReference.sourceVault.id": (Outcome.WARNED, "not needed: the URL names the vault"),
    "secrets[].valueSecretReference.secretUrl": (
        Outcome.WARNED,
        "`env[].valueFrom`; you create Secret `<job>-keyvault` from the key vault",
    ),
    "constraints.maxWallClockTime": (
        Outcome.CONVERTED,
        "`runPolicy.activeDeadlineSeconds`; default `604800`, Batch AI's week",
    ),
    "mountVolumes.azureFileShares[].azureFileUrl": (
        Outcome.CONVERTED,
        "`azureFiles[].account`, `share`, `directory` and, in other clouds, `server`",
    ),
    "mountVolumes.azureFileShares[].accountName": (Outcome.CONVERTED, "`azureFiles[].account`; default: from the URL"),
    "mountVolumes.azureFileShares[].relativeMountPath": (
        Outcome.CONVERTED,
        "`azureFiles[].name` and, where it is no name, `relativeMountPath`",
    ),
    "mountVolumes.azureFileShares[].fileMode": (Outcome.CONVERTED, "`azureFiles[].mountOptions`: `file_mode`"),
    "mountVolumes.azureFileShares[].directoryMode": (Outcome.CONVERTED, "`azureFiles[].mountOptions`: `dir_mode`"),
    "mountVolumes.azureFileShares[].credentials.accountKey": (
        Outcome.CONVERTED,
        "Secret `azure-storage-account-<account>-secret`",
    ),
    "mountVolumes.azureFileShares[].credentials.accountKeySecretReference.sourceVault.id": (
        Outcome.WARNED,
        "not needed: the URL names the vault",
    ),
    "mountVolumes.azureFileShares[].credentials.accountKeySecretReference.secretUrl": (
        Outcome.WARNED,
        "you create Secret `azure-storage-account-<account>-secret` from the key vault",
    ),
    "mountVolumes.azureBlobFileSystems[].accountName": (Outcome.CONVERTED, "the Secret's name"),
    "mountVolumes.azureBlobFileSystems[].containerName": (
        Outcome.CONVERTED,
        "`volumes[].csi` with the driver `blob.csi.azure.com`",
    ),
    "mountVolumes.azureBlobFileSystems[].relativeMountPath": (Outcome.CONVERTED, "`volumeMounts[].mountPath`"),
    "mountVolumes.azureBlobFileSystems[].mountOptions": (
        Outcome.CONVERTED,
        "`volumes[].csi.volumeAttributes.mountOptions`, with a warning: blobfuse 2 has other options",
    ),
    "mountVolumes.azureBlobFileSystems[].credentials.accountKey": (
        Outcome.CONVERTED,
        "Secret `azure-storage-account-<account>-secret`",
    ),
    "mountVolumes.azureBlobFileSystems[].credentials.accountKeySecretReference.sourceVault.id": (
        Outcome.WARNED,
        "not needed: the URL names the vault",
    ),
    "mountVolumes.azureBlobFileSystems[].credentials.accountKeySecretReference.secretUrl": (
        Outcome.WARNED,
        "you create Secret `azure-storage-account-<account>-secret` from the key vault",
    ),
    "mountVolumes.fileServers[].fileServer.id": (
        Outcome.CONVERTED,
        "`volumes[].nfs.server`: `--nfs-server NAME=HOST:/PATH` gives the address of the file server today",
    ),
    "mountVolumes.fileServers[].sourceDirectory": (Outcome.CONVERTED, "`volumes[].nfs.path`"),
    "mountVolumes.fileServers[].relativeMountPath": (Outcome.CONVERTED, "`volumeMounts[].mountPath`"),
    "mountVolumes.fileServers[].mountOptions": (
        Outcome.WARNED,
        "`rw` and `ro` are converted; others need a PersistentVolume",
    ),
    "mountVolumes.unmanagedFileSystems[].mountCommand": (
        Outcome.CONVERTED,
        "`mount -t nfs`: `volumes[].nfs`; `mount -t cifs`: `volumes[].csi` with the driver `smb.csi.k8s.io`; "
        "any other is refused",
    ),
    "mountVolumes.unmanagedFileSystems[].relativeMountPath": (Outcome.CONVERTED, "`volumeMounts[].mountPath`"),
    **_rank_program("horovodSettings", "script"),
    "customMpiSettings.commandLine": (Outcome.CONVERTED, "`command`; shell syntax: `[/bin/sh, -c, ...]`"),
    "customMpiSettings.processCount": (
        Outcome.CONVERTED,
        "`worker.slots` = processCount / nodeCount, which must be a whole number",
    ),
    "customToolkitSettings.commandLine": (Outcome.CONVERTED, "`launcherCommand`, with `launcher.asWorker`"),
    **_rank_program("chainerSettings", "command"),
    **_rank_program("cntkSettings", "command"),
    "cntkSettings.languageType": (Outcome.CONVERTED, "`Python`: nothing; `BrainScript` is refused"),
    "cntkSettings.configFilePath": (Outcome.REFUSED, "BrainScript"),
    **_rank_program("pyTorchSettings", "command"),
    "pyTorchSettings.communicationBackend": (
        Outcome.CONVERTED,
        f"`MPI`: nothing; `TCP` and `Gloo` are refused: {KUBEFLOW} runs them",
    ),
    "tensorFlowSettings.pythonScriptFilePath": (Outcome.CONVERTED, "`script`, for one worker on one node"),
    "tensorFlowSettings.pythonInterpreterPath": (Outcome.CONVERTED, "`script`; default `python`"),
    "tensorFlowSettings.masterCommandLineArgs": (Outcome.CONVERTED, "`script.args`"),
    "tensorFlowSettings.workerCommandLineArgs": (Outcome.WARNED, "one worker is the master: not used"),
    "tensorFlowSettings.parameterServerCommandLineArgs": (Outcome.REFUSED, f"parameter servers: {KUBEFLOW} runs them"),
    "tensorFlowSettings.workerCount": (Outcome.CONVERTED, f"`1`: nothing; more are refused: {KUBEFLOW} runs them"),
    "tensorFlowSettings.parameterServerCount": (
        Outcome.CONVERTED,
        f"`0`: nothing; more are refused: {KUBEFLOW} runs them",
    ),
    **_refused(
        "caffeSettings",
        f"configFilePath {SCRIPT} pythonInterpreterPath commandLineArgs processCount",
        "Caffe: train with PyTorch or Keras",
    ),
    **_refused(
        "caffe2Settings",
        f"{SCRIPT} pythonInterpreterPath commandLineArgs",
        f"Caffe2 is part of PyTorch: {KUBEFLOW} runs that",
    ),
}


def field_table() -> str:
    """The table of the documentation, in Markdown."""
    rows = (f"| `{path}` | {outcome.value} | {text} |\n" for path, (outcome, text) in FIELDS.items())
    return "".join(["| field of `properties` | outcome | becomes |\n| --- | --- | --- |\n", *rows])


def page_with_table(page: str) -> str:
    """The page with the table between its two markers."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}{field_table()}{END}{rest.partition(END)[2]}"


def toolkits() -> Iterator[str]:
    """Keys of the toolkits; a job has exactly one."""
    yield from dict.fromkeys(path.partition(".")[0] for path in FIELDS if _is_toolkit(path))


def _is_toolkit(path: str) -> bool:
    key = path.partition(".")[0]
    return key.endswith("Settings") and key != "containerSettings"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        file = Path(sys.argv[1])
        file.write_text(page_with_table(file.read_text()))
    else:
        sys.stdout.write(field_table())
