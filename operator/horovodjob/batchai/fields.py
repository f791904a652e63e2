"""Every field of job.json (API 2018-05-01): where it goes, or why not.

The conversion knows the fields and toolkits of this table alone and takes its sentences from it; docs/job-json.md is
generated from it.

Write it again with `python -m horovodjob.batchai.fields docs/job-json.md`.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from horovodjob.api.storage_account import SECRET_ACCOUNT, SECRET_KEY

BEGIN, END = "<!-- fields: begin -->\n", "<!-- fields: end -->\n"
# Keys of the document without meaning for the job.
IGNORED = frozenset({"$schema", "location", "toolType", "type", "tags"})
SCRIPT = "pythonScriptFilePath"


class Field(NamedTuple):
    """A field: where its value goes in the spec, and what the conversion says where it cannot or can only partly.

    Without `becomes` the field is always refused, or reported as not used.
    """

    becomes: str = ""
    refusal: str = ""
    warning: str = ""


def _rank_program(toolkit: str, target: str) -> dict[str, Field]:
    return {
        f"{toolkit}.{SCRIPT}": Field(f"`{target}`"),
        f"{toolkit}.pythonInterpreterPath": Field(f"`{target}`; default `python`"),
        f"{toolkit}.commandLineArgs": Field(f"`{target}`; shell syntax: `command: [/bin/sh, -c, ...]`"),
        f"{toolkit}.processCount": PROCESSES,
    }


def _unsupported(toolkit: str, keys: str, why: str) -> dict[str, Field]:
    return {f"{toolkit}.{key}": Field(refusal=why) for key in keys.split()}


def _account_key(mount: str) -> dict[str, Field]:
    return {
        f"{mount}.credentials.accountKey": Field(ACCOUNT_SECRET),
        f"{mount}.credentials.accountKeySecretReference.sourceVault.id": VAULT,
        f"{mount}.credentials.accountKeySecretReference.secretUrl": Field(
            ACCOUNT_SECRET,
            warning=f"create the Secret {{secret}}, with {SECRET_ACCOUNT} and {SECRET_KEY}, from the key vault's "
            "secret {url}",
        ),
    }


PROCESSES = Field(
    "`worker.slots` = processCount / nodeCount",
    refusal="is {processes} on {nodes} nodes, and each node has the same number: make it a multiple of {nodes}",
)
VAULT = Field("nothing: the URL names the vault")
ACCOUNT_SECRET = "Secret `azure-storage-account-<account>-secret`"
MOUNT_PATH = Field("`volumeMounts[].mountPath`")
RESERVED_NAME = "begins with AZ_BATCHAI_ or HOROVODJOB_, which the operator sets: choose another"
KUBEFLOW = "Kubeflow Trainer (https://www.kubeflow.org/docs/components/trainer/)"
BRAIN_SCRIPT = (
    "CNTK has no release since 2019 and no service runs BrainScript today: write the model for Keras and Horovod, or "
    "for PyTorch, which Kubeflow Trainer runs"
)
PARAMETER_SERVERS = (
    "HorovodJob has no parameter servers: run the script as a TFJob of Kubeflow's Training Operator, which Kubeflow "
    "Trainer succeeds, or change it to Horovod and use horovodSettings"
)
REGISTRY = "containerSettings.imageSourceRegistry"
SHARE, BLOB = "mountVolumes.azureFileShares[]", "mountVolumes.azureBlobFileSystems[]"
FILE_SERVER, UNMANAGED = "mountVolumes.fileServers[]", "mountVolumes.unmanagedFileSystems[]"

FIELDS: dict[str, Field] = {
    "schedulingPriority": Field(
        "`priorityClassName`: `horovodjob-low` or `horovodjob-high`; `normal`: nothing",
        warning="needs a PriorityClass: kubectl create priorityclass {name} --value={value}, if the cluster has none",
    ),
    "cluster.id": Field("`pool`: the last part of the id; `--cluster` names another"),
    "nodeCount": Field("`worker.replicas`"),
    "stdOutErrPathPrefix": Field(
        "`logs.pathPrefix`; a path in `$AZ_BATCHAI_JOB_TEMP`: nothing",
        warning="is deleted with the pods, so there are no log files: use a share, or kubectl logs",
    ),
    "jobPreparation.commandLine": Field(
        "`preparation.command`; one that installs MPI or ssh: `launcher.asWorker`; omitted where the trainer image has "
        "all that it installs"
    ),
    f"{REGISTRY}.image": Field(
        "`image`, and `podSecurity: Baseline` unless it is the trainer image; `--image` names another",
        warning="the CUDA libraries of {image} have no kernels for today's GPUs (Turing and newer): name another image "
        "with --image",
    ),
    f"{REGISTRY}.serverUrl": Field("`image`: its beginning"),
    f"{REGISTRY}.credentials.username": Field("Secret `<job>-registry` and `imagePullSecrets`"),
    f"{REGISTRY}.credentials.password": Field("Secret `<job>-registry`"),
    f"{REGISTRY}.credentials.passwordSecretReference.sourceVault.id": VAULT,
    f"{REGISTRY}.credentials.passwordSecretReference.secretUrl": Field(
        "`imagePullSecrets`",
        warning="create the Secret with kubectl create secret docker-registry {name} --docker-server={server} "
        "--docker-username=USER --docker-password=PASSWORD, the password from the key vault's secret {url}",
    ),
    "containerSettings.shmSize": Field("`shmSize`; Docker's units are binary: `16g` is `16Gi`"),
    "inputDirectories[].id": Field("`inputs[].id`"),
    "inputDirectories[].path": Field("`inputs[].path`"),
    "outputDirectories[].id": Field("`outputs[].id`"),
    "outputDirectories[].pathPrefix": Field("`outputs[].pathPrefix`"),
    "outputDirectories[].pathSuffix": Field("`outputs[].pathSuffix`"),
    "environmentVariables[].name": Field("`env[].name`", refusal=RESERVED_NAME),
    "environmentVariables[].value": Field("`env[].value`"),
    "secrets[].name": Field("`env[].name`, with a `secretKeyRef`", refusal=RESERVED_NAME),
    "secrets[].value": Field("Secret `<job>-secrets`"),
    "secrets[].valueSecretReference.sourceVault.id": VAULT,
    "secrets[].valueSecretReference.secretUrl": Field(
        "`env[].valueFrom`, the Secret `<job>-keyvault`",
        warning="create the Secret {secret} with the key {key} from the key vault's secret {url}",
    ),
    "constraints.maxWallClockTime": Field("`runPolicy.activeDeadlineSeconds`; default `604800`, Batch AI's week"),
    f"{SHARE}.azureFileUrl": Field("`azureFiles[].account`, `share`, `directory` and, in other clouds, `server`"),
    f"{SHARE}.accountName": Field("`azureFiles[].account`; default: from the URL"),
    f"{SHARE}.relativeMountPath": Field("`azureFiles[].name` and, where it is no name, `relativeMountPath`"),
    f"{SHARE}.fileMode": Field("`azureFiles[].mountOptions`: `file_mode`"),
    f"{SHARE}.directoryMode": Field("`azureFiles[].mountOptions`: `dir_mode`"),
    **_account_key(SHARE),
    f"{BLOB}.accountName": Field("`volumes[].csi.volumeAttributes.secretName`"),
    f"{BLOB}.containerName": Field("`volumes[].csi` with the driver `blob.csi.azure.com`"),
    f"{BLOB}.relativeMountPath": MOUNT_PATH,
    f"{BLOB}.mountOptions": Field(
        "`volumes[].csi.volumeAttributes.mountOptions`",
        warning="these are options of blobfuse 1: compare them with those of blobfuse 2",
    ),
    **_account_key(BLOB),
    f"{FILE_SERVER}.fileServer.id": Field(
        "`volumes[].nfs.server`, the address of `--nfs-server`",
        refusal="the Batch AI file server {name} no longer exists: name the NFS server with its files, "
        "--nfs-server {name}=HOST:/PATH",
    ),
    f"{FILE_SERVER}.sourceDirectory": Field("`volumes[].nfs.path`"),
    f"{FILE_SERVER}.relativeMountPath": MOUNT_PATH,
    f"{FILE_SERVER}.mountOptions": Field(
        "`volumes[].nfs.readOnly`: `ro` and `rw`", warning="{options} needs a PersistentVolume with mountOptions"
    ),
    f"{UNMANAGED}.mountCommand": Field(
        "`volumes[].nfs` for `mount -t nfs`; `volumes[].csi` with the driver `smb.csi.k8s.io` for `mount -t cifs`",
        refusal="only `mount -t nfs HOST:/PATH` and `mount -t cifs //HOST/SHARE` can be converted: mount other file "
        "systems through a PersistentVolumeClaim in spec.volumes",
        warning="the option {options} needs a PersistentVolume with mountOptions",
    ),
    f"{UNMANAGED}.relativeMountPath": MOUNT_PATH,
    **_rank_program("horovodSettings", "script"),
    "customMpiSettings.commandLine": Field(
        "`command`; shell syntax: `[/bin/sh, -c, ...]`",
        refusal="starts mpirun in each rank: remove mpirun and its options, or use customToolkitSettings",
    ),
    "customMpiSettings.processCount": PROCESSES,
    "customToolkitSettings.commandLine": Field("`launcherCommand`, with `launcher.asWorker`"),
    **_rank_program("chainerSettings", "command"),
    **_rank_program("cntkSettings", "command"),
    "cntkSettings.languageType": Field("`Python`: nothing; `BrainScript` is refused", refusal=BRAIN_SCRIPT),
    "cntkSettings.configFilePath": Field(refusal=BRAIN_SCRIPT),
    **_rank_program("pyTorchSettings", "command"),
    "pyTorchSettings.communicationBackend": Field(
        "`MPI`: nothing; any other is refused",
        refusal=f"HorovodJob starts ranks with MPI: run PyTorch with Gloo, TCP or NCCL on {KUBEFLOW}, or change the "
        "script to Horovod or to the MPI backend",
    ),
    f"tensorFlowSettings.{SCRIPT}": Field("`script`, for one worker on one node"),
    "tensorFlowSettings.pythonInterpreterPath": Field("`script`; default `python`"),
    "tensorFlowSettings.masterCommandLineArgs": Field("`script.args`"),
    "tensorFlowSettings.workerCommandLineArgs": Field(warning="is not used: the only worker is the master"),
    "tensorFlowSettings.parameterServerCommandLineArgs": Field(refusal=PARAMETER_SERVERS),
    "tensorFlowSettings.workerCount": Field(
        "`1`: nothing; more are refused",
        refusal="HorovodJob sets no TF_CONFIG: run TensorFlow with several workers as a TFJob of Kubeflow's Training "
        "Operator, which Kubeflow Trainer succeeds, or change the script to Horovod and use horovodSettings",
    ),
    "tensorFlowSettings.parameterServerCount": Field("`0`: nothing; more are refused", refusal=PARAMETER_SERVERS),
    **_unsupported(
        "caffeSettings",
        f"configFilePath {SCRIPT} pythonInterpreterPath commandLineArgs processCount",
        "Caffe has no release since 2017 and no service runs it today: train the model with PyTorch or Keras",
    ),
    **_unsupported(
        "caffe2Settings",
        f"{SCRIPT} pythonInterpreterPath commandLineArgs",
        f"Caffe2 has become a part of PyTorch: train the model with PyTorch, which {KUBEFLOW} distributes with Gloo or "
        "NCCL",
    ),
}


def refusal(path: str, **values: object) -> str:
    """The sentence with which a field is refused, by its path in the document."""
    return _field(path).refusal.format(**values)


def warning(path: str, **values: object) -> str:
    """The sentence with which a field is reported."""
    return _field(path).warning.format(**values)


def _field(path: str) -> Field:
    return FIELDS[re.sub(r"\[\d+\]", "[]", path).removeprefix("properties.")]


def field_table() -> str:
    """The table of the documentation, in Markdown."""
    rows = (f"| `{path}` | {field.becomes} | {_sentences(field)} |\n" for path, field in FIELDS.items())
    return "".join(["| field of `properties` | becomes | refusal or warning |\n| --- | --- | --- |\n", *rows])


def _sentences(field: Field) -> str:
    sentences = {"refused": field.refusal, "warning": field.warning}
    text = "; ".join(f"{kind}: {sentence}" for kind, sentence in sentences.items() if sentence)
    return re.sub(r"{(\w+)}", r"`<\1>`", text)


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
