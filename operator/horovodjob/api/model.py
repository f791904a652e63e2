"""What all models of the resource share: frozen, camelCase outside, unknown fields ignored when reading."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, StringConstraints, WithJsonSchema
from pydantic.alias_generators import to_camel

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]+)?$"


class Model(BaseModel):
    """A frozen part of the resource; an older operator reads a newer CRD's objects without complaint."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


def rfc3339(moment: datetime) -> str:
    """The moment as Kubernetes writes it: UTC, whole seconds, `Z`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[datetime, PlainSerializer(rfc3339, when_used="json")]
OpenObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
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
    """Schema extension: a list whose items are told apart by these fields, so none can occur twice."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
