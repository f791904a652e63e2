"""Sample documents of Batch AI, and strict validation of their conversion."""

import copy
from typing import Any

from horovodjob.api.spec import HorovodJobSpec
from horovodjob.batchai.choices import Choices
from horovodjob.batchai.conversion import Conversion, ConversionError, convert

Object = dict[str, Any]
ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
SECRET_VALUES = ("s3cret-token", "s3cret-password", "s3cret-key", "s3cret-smb")
CLUSTER = "/subscriptions/0/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/clusters/gpunp"
HOROVOD: Object = {"pythonScriptFilePath": f"{ROOT}/share/train.py"}
SMALL: Object = {
    "nodeCount": 2,
    "horovodSettings": HOROVOD,
    "stdOutErrPathPrefix": f"{ROOT}/share/logs",
    "mountVolumes": {
        "azureFileShares": [
            {"azureFileUrl": "https://account.file.core.windows.net/share", "relativeMountPath": "share"}
        ]
    },
    "containerSettings": {"imageSourceRegistry": {"image": "example/training:1"}},
}
# Each field of the table that is converted.
EVERYTHING: Object = {
    "$schema": "https://example.com/job.json",
    "properties": {
        "toolType": "horovod",
        "nodeCount": "2",
        "schedulingPriority": "high",
        "cluster": {"id": CLUSTER},
        "horovodSettings": {
            "pythonScriptFilePath": "$AZ_BATCHAI_INPUT_SCRIPTS/train.py",
            "pythonInterpreterPath": "/usr/bin/python3",
            "commandLineArgs": "--out ${AZ_BATCHAI_OUTPUT_MODEL} --price 'it costs $5' \"$GREETING\"",
            "processCount": 8,
        },
        "jobPreparation": {"commandLine": "apt-get update && apt-get install -y libgomp1"},
        "stdOutErrPathPrefix": f"{ROOT}/logs",
        "inputDirectories": [{"id": "SCRIPTS", "path": f"{ROOT}/logs/scripts"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": f"{ROOT}/logs", "pathSuffix": "models"}],
        "environmentVariables": [{"name": "GREETING", "value": "hello world"}, {"name": "EPOCHS", "value": 5}],
        "secrets": [
            {"name": "TOKEN", "value": "s3cret-token"},
            {
                "name": "LICENSE",
                "valueSecretReference": {"sourceVault": {"id": "/v"}, "secretUrl": "https://v/license"},
            },
        ],
        "constraints": {"maxWallClockTime": "1 day, 2:00:00"},
        "containerSettings": {
            "shmSize": "16gb",
            "imageSourceRegistry": {
                "serverUrl": "https://registry.example.com",
                "image": "team/training:1",
                "credentials": {"username": "reader", "password": "s3cret-password"},
            },
        },
        "mountVolumes": {
            "azureFileShares": [
                {
                    "accountName": "account",
                    "azureFileUrl": "https://account.file.core.windows.net/logs/of/team",
                    "relativeMountPath": "logs",
                    "fileMode": "0755",
                    "directoryMode": "0750",
                    "credentials": {"accountKey": "s3cret-key"},
                },
                {
                    "azureFileUrl": "https://other.file.core.chinacloudapi.cn/data",
                    "relativeMountPath": "My_Data",
                    "credentials": {
                        "accountKeySecretReference": {"sourceVault": {"id": "/v"}, "secretUrl": "https://v/key"}
                    },
                },
            ],
            "azureBlobFileSystems": [
                {
                    "accountName": "account",
                    "containerName": "pictures",
                    "relativeMountPath": "pictures",
                    "mountOptions": "-o ro",
                }
            ],
            "fileServers": [
                {
                    "fileServer": {"id": "/subscriptions/0/fileServers/nfs"},
                    "sourceDirectory": "/sets",
                    "relativeMountPath": "nfs",
                    "mountOptions": "ro",
                }
            ],
            "unmanagedFileSystems": [
                {"mountCommand": "mount -t nfs4 10.0.0.4:/exports", "relativeMountPath": "plain"},
                {
                    "mountCommand": "mount -t cifs //smb.example/team -o vers=3.0,username=u,password=s3cret-smb",
                    "relativeMountPath": "smb",
                },
            ],
        },
    },
}
NFS_SERVERS = {"nfs": "10.0.0.9:/export"}


def small(**properties: Any) -> Object:
    """A job with other properties; None removes one."""
    return {"properties": {key: value for key, value in (SMALL | properties).items() if value is not None}}


def toolkit(key: str, nodes: int = 2, **settings: Any) -> Object:
    """A job with this toolkit instead of Horovod."""
    return small(**{"horovodSettings": None, "nodeCount": nodes, key: settings})


def mounts(kind: str, *volumes: Object) -> Object:
    """A job with these mounts."""
    return small(mountVolumes={kind: list(volumes)})


def everything() -> Object:
    """A document that can be changed."""
    return copy.deepcopy(EVERYTHING)


def converted(document: Any, **options: Any) -> Conversion:
    """The conversion; each of its fields is a field of the resource."""
    result = _convert(document, {"nfs_servers": NFS_SERVERS} | options)
    require_complete(result.job["spec"])
    return result


def require_complete(spec: Object) -> None:
    """Asserts that the model has each field of the spec, because it ignores unknown ones."""
    model = HorovodJobSpec.model_validate(spec)
    assert model.model_dump(by_alias=True, exclude_unset=True, mode="json") == spec


def spec_of(document: Any, **options: Any) -> Object:
    """The converted spec."""
    spec: Object = converted(document, **options).job["spec"]
    return spec


def problems(document: Any, **options: Any) -> dict[str, str]:
    """Messages of a rejection by path."""
    try:
        result = _convert(document, options)
    except ConversionError as error:
        return {problem.path: problem.sentence for problem in error.problems}
    raise AssertionError(f"was converted: {result.job}")


def warnings(document: Any, **options: Any) -> str:
    """All warnings, a line each."""
    return "\n".join(converted(document, **options).warnings)


def _convert(document: Any, options: Object) -> Conversion:
    name, namespace = options.pop("name", "job"), options.pop("namespace", None)
    return convert(document, name=name, namespace=namespace, choices=Choices(**options))
