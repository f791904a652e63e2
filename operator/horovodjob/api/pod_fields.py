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
# As Kubernetes has it for keys of envFrom: a shell cannot have all of these names.
VARIABLE_NAME = r"^[-._A-Za-z][-._A-Za-z0-9]*$"
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
            "prefix": "Prefix of the name of each variable.",
        }
    ),
]


class EnvVar(Model):
    """An environment variable, as in a container."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=VARIABLE_NAME)] = Field(
        description="Name of the variable: letters, digits, underscores, dots and dashes, not beginning with a digit."
    )
    value: Text | None = Field(
        None, description="Value of the variable; $(NAME) refers to a variable that is defined before it."
    )
    value_from: ValueFrom | None = Field(
        None, description="Source of the value, in place of value: secretKeyRef, configMapKeyRef or fieldRef."
    )


class LocalObjectReference(Model):
    """A reference to an object in the namespace of the job."""

    name: Name = Field(description="Name of the object.")


class Resources(Model):
    """ResourceRequirements of a container."""

    requests: dict[str, Quantity] | None = Field(
        None, description="Resources that the scheduler reserves on the node.", json_schema_extra={"maxProperties": 64}
    )
    limits: dict[str, Quantity] | None = Field(
        None, description="Maximum of resources that the container can use.", json_schema_extra={"maxProperties": 64}
    )


class Toleration(Model):
    """A taint that the pods of the job tolerate."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = Field(
        None, description="Key of the taint. Absent with operator Exists: all taints."
    )
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = Field(
        None, description="Exists or Equal (the default); Lt and Gt if the cluster supports them."
    )
    value: Annotated[str, StringConstraints(max_length=63)] | None = Field(
        None, description="Value of the taint, with operator Equal."
    )
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="NoSchedule, PreferNoSchedule or NoExecute. Empty: all effects."
    )
    toleration_seconds: int | None = Field(None, description="Seconds for which a NoExecute taint is tolerated.")


class VolumeMount(Model):
    """A mount of a volume in the containers, as in `volumeMounts` of a container."""

    model_config = ConfigDict(extra="allow", json_schema_extra=OPEN)
    name: VolumeName = Field(description="Name of the volume.")
    mount_path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] = Field(
        description="Absolute path in the containers."
    )
    read_only: bool | None = Field(None, description="Whether the mount is read-only.")
    sub_path: Path | None = Field(None, description="Path in the volume that is mounted in place of its root.")
    sub_path_expr: Path | None = Field(
        None, description="Like subPath; $(NAME) is replaced by the value of a variable."
    )
    mount_propagation: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        None, description="None, HostToContainer or Bidirectional."
    )
    recursive_read_only: Annotated[str, StringConstraints(max_length=32)] | None = Field(
        None, description="Whether mounts below a read-only mount are read-only too: Disabled, IfPossible or Enabled."
    )


def _volume_sources(schema: dict[str, Any]) -> None:
    descriptions = {source: f"Volume source; its fields are those of {source} in a pod." for source in VOLUME_SOURCES}
    schema["properties"] |= open_fields(descriptions)
    schema.update(OPEN)


class Volume(Model):
    """A volume of the pods, with one of the volume sources of Kubernetes."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_volume_sources)
    name: VolumeName = Field(description="Name of the volume.")
