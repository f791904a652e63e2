"""Fields of a pod that launcher and workers have in common, as Kubernetes defines them."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from horovodjob.api.base import OPEN, Model, Name, Quantity, Text, open_fields, open_object

Path = Annotated[str, StringConstraints(max_length=4096)]
VolumeName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
VOLUME_SOURCES = (
    "azureDisk",
    "azureFile",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "projected",
    "secret",
)
ValueFrom = Annotated[
    dict[str, Any],
    open_object(
        {
            "secretKeyRef": "A key of a Secret: name, key, optional.",
            "configMapKeyRef": "A key of a ConfigMap: name, key, optional.",
            "fieldRef": "A field of the pod: fieldPath.",
            "resourceFieldRef": "A request or limit of a container: resource, containerName, divisor.",
            "fileKeyRef": "A key of a file in a volume: volumeName, path, key, optional.",
        }
    ),
]
EnvFrom = Annotated[
    dict[str, Any],
    open_object(
        {
            "configMapRef": "A ConfigMap: name, optional.",
            "secretRef": "A Secret: name, optional.",
            "prefix": "What is put before the name of each variable.",
        }
    ),
]


class EnvVar(Model):
    """One variable, as in a container."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        description="Name of the variable: letters, digits and underscores, not beginning with a digit."
    )
    value: Text | None = Field(None, description="Its value; $(NAME) refers to a variable defined before it.")
    value_from: ValueFrom | None = Field(
        None, description="Where the value comes from instead: secretKeyRef, configMapKeyRef, fieldRef."
    )


class LocalObjectReference(Model):
    """An object of the job's namespace, by name."""

    name: Name = Field(description="Name of the object.")


class Resources(Model):
    """ResourceRequirements of a container."""

    requests: dict[str, Quantity] | None = Field(
        None, description="What the scheduler sets aside.", json_schema_extra={"maxProperties": 64}
    )
    limits: dict[str, Quantity] | None = Field(
        None, description="What the container can use at most.", json_schema_extra={"maxProperties": 64}
    )


class Toleration(Model):
    """A taint that the job's pods accept."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = Field(
        None, description="Key of the taint; absent with operator Exists: every taint."
    )
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = Field(
        None, description="Exists or Equal (the default); Lt and Gt where the cluster has them."
    )
    value: Annotated[str, StringConstraints(max_length=63)] | None = Field(
        None, description="Value of the taint, with operator Equal."
    )
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="NoSchedule, PreferNoSchedule or NoExecute; empty: all of them."
    )
    toleration_seconds: int | None = Field(None, description="How long a NoExecute taint is accepted.")


class VolumeMount(Model):
    """Where a volume appears in the containers, as in a container's volumeMounts."""

    model_config = ConfigDict(extra="allow", json_schema_extra=OPEN)
    name: VolumeName = Field(description="Name of the volume.")
    mount_path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="Absolute path in the containers."
    )
    read_only: bool | None = Field(None, description="Whether the containers can only read it.")
    sub_path: Path | None = Field(None, description="Path within the volume that is mounted instead of its root.")
    sub_path_expr: Path | None = Field(None, description="The same, with $(NAME) replaced by variables.")
    mount_propagation: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        None, description="None, HostToContainer or Bidirectional."
    )
    recursive_read_only: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        None, description="Whether what is mounted below it can only be read too: Disabled, IfPossible or Enabled."
    )


def _volume_sources(schema: dict[str, Any]) -> None:
    words = {source: f"A volume of this kind; its fields are those of {source} in a pod." for source in VOLUME_SOURCES}
    schema["properties"] |= open_fields(words)
    schema.update(OPEN)


class Volume(Model):
    """A volume of the pods; its source is one of those that a pod can have."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_volume_sources)
    name: VolumeName = Field(description="Name of the volume.")
