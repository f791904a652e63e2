"""Generator of the CustomResourceDefinition and its admission policy: `python -m horovodjob.api.crd [FILE]`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from horovodjob.api import frozen_spec
from horovodjob.api.constants import FINISHED_FIELD, GROUP, KIND, PLURAL, VERSION
from horovodjob.api.printer_columns import PRINTER_COLUMNS
from horovodjob.api.spec import HorovodJobSpec
from horovodjob.api.status import HorovodJobStatus

KEPT = (
    "type",
    "description",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
)
NAME_RULES: tuple[dict[str, Any], ...] = (
    {
        "rule": "!self.metadata.name.contains('.')",
        "message": "metadata.name must not contain dots, because the pods' names and labels are made from it",
    },
    {
        "rule": "size(self.metadata.name) + 8 + size(string(self.spec.worker.replicas - 1)) <= 63",
        "message": "metadata.name is too long for the pods that are named after it: "
        "<name>-worker-<last index> may have 63 characters",
    },
    {
        # The name of an existing job cannot change: it can run with the workers that its name allows.
        "rule": "!has(self.spec.elastic) || "
        "size(self.metadata.name) + 8 + size(string(self.spec.elastic.maxReplicas - 1)) <= 63 || "
        "oldSelf.hasValue() && has(oldSelf.value().spec.elastic) && "
        "oldSelf.value().spec.elastic.maxReplicas == self.spec.elastic.maxReplicas",
        "optionalOldSelf": True,
        "message": "metadata.name is too long for the pods that are named after it with elastic.maxReplicas, by "
        "default 10000: <name>-worker-<elastic.maxReplicas - 1> may have 63 characters",
    },
)

# With the definition, the API server deletes every job of the cluster.
NEVER_PRUNED = {
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


def _nullable(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema without the alternative `null` that pydantic adds; the API server drops null values."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**options[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The structural schema (of CustomResourceDefinitions) for a JSON schema of pydantic."""
    schema = _nullable(schema)
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    out: dict[str, Any] = {key: schema[key] for key in KEPT if key in schema}
    out |= {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if out.get("x-kubernetes-int-or-string"):
        out["anyOf"] = schema["anyOf"]
    if schema.get("default") is not None:
        # The fields of an object have the defaults, so the default of the object itself is empty.
        out["default"] = {} if schema.get("type") == "object" else schema["default"]
    if "items" in schema:
        out["items"] = structural(schema["items"], definitions)
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = structural(schema["additionalProperties"], definitions)
    if "properties" in schema:
        out["properties"] = {name: structural(field, definitions) for name, field in schema["properties"].items()}
        required = [name for name in schema.get("required", ()) if "default" not in schema["properties"][name]]
        if required:
            out["required"] = required
    return out


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of a model."""
    schema = model.model_json_schema(by_alias=True)
    return structural(schema, schema.get("$defs", {}))


def status_schema() -> dict[str, Any]:
    """Schema of the status. A new job has observedGeneration -1, so that tools wait for the operator."""
    schema = schema_of(HorovodJobStatus)

    def strip(node: dict[str, Any]) -> None:
        node.pop("default", None)
        for child in (*node.get("properties", {}).values(), node.get("items")):
            if isinstance(child, dict):
                strip(child)

    strip(schema)
    schema["default"] = {"observedGeneration": -1}
    schema["description"] = "The observed state of the job, which the operator reports."
    # One owner writes the status. Field management per field would be a third of a finished job's size in etcd, and a
    # quarter of the cost of a status write.
    schema["x-kubernetes-map-type"] = "atomic"
    return schema


def custom_resource_definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    columns = [
        # The API server does not store priority 0, so with it each `kubectl apply` would be a change.
        {"name": name, "type": type_, "jsonPath": path, "description": description}
        | ({"priority": priority} if priority else {})
        for name, type_, path, priority, description in PRINTER_COLUMNS
    ]
    schema = {
        "type": "object",
        "description": "HorovodJob runs a distributed training program under mpirun on launcher and worker pods.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": "HorovodJob."},
            "metadata": {"type": "object"},
            "spec": schema_of(HorovodJobSpec),
            "status": status_schema(),
        },
        "x-kubernetes-validations": [*NAME_RULES, frozen_spec.REPLICAS_RULE],
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        # The operator lists the unfinished jobs first.
        "selectableFields": [{"jsonPath": f".{FINISHED_FIELD}"}],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.worker.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["hvj", "hvjob"],
                "categories": ["training"],
            },
            "versions": [version],
        },
    }


def has_field(path: str) -> bool:
    """Whether jobs of this version have this field, such as spec.env[0].name."""
    schema: Any = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.split("."):
        field, _, index = name.partition("[")
        schema = (schema.get("properties") or {}).get(field)
        if schema is None:
            return False
        schema = schema.get("items", {}) if index else schema
    return True


def crd_yaml() -> str:
    """The CustomResourceDefinition and its admission policy as YAML."""
    objects = (custom_resource_definition(), frozen_spec.policy(), frozen_spec.binding())
    for each in objects:
        each["metadata"]["annotations"] = dict(NEVER_PRUNED)
    return yaml.safe_dump_all(objects, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(crd_yaml())
    else:
        sys.stdout.write(crd_yaml())
