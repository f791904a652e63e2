"""The base of all models of the resource: frozen, with camelCase aliases, ignoring unknown fields."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]+)?$"


class Model(BaseModel):
    """A frozen part of the resource. It ignores unknown fields, so an older operator reads objects of a newer CRD."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


def api_fields(model: Model | None) -> dict[str, Any]:
    """The fields of a model that are set, with their names in the API."""
    return model.model_dump(by_alias=True, exclude_none=True) if model else {}


def rfc3339(moment: datetime) -> str:
    """The time in the format of Kubernetes: UTC, whole seconds, `Z`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[datetime, PlainSerializer(rfc3339, when_used="json")]
OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


def open_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """Schema properties of any type, by name and description.

    CEL compares values without a type as a whole. For an object it compares only the fields in its schema, so
    {hostNetwork: true} would equal {hostPID: true}, and a frozen field could change.
    """
    return {name: {**OPEN, "description": description} for name, description in fields.items()}


def open_object(fields: Mapping[str, str]) -> WithJsonSchema:
    """Schema of an object without pruning. It names the usual fields, so that CEL compares them."""
    return WithJsonSchema({"type": "object", "properties": open_fields(fields), **OPEN})


Quantity = Annotated[
    int | str,
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
        }
    ),
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]
Text = Annotated[str, StringConstraints(max_length=131072)]


def list_map(*keys: str) -> dict[str, Any]:
    """Schema extension: a list whose items are unique by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def validations(*rules: tuple[str, str]) -> ConfigDict:
    """Model configuration with CEL rules, each with the message for its violation."""
    schema: list[Any] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": schema})
