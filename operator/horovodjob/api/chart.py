"""Generator of the schema of the job chart's values: `python -m horovodjob.api.chart DIRECTORY`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from horovodjob.api.crd import schema_of
from horovodjob.api.spec import HorovodJobSpec

TEXT = ("string", "number", "boolean")
KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LABEL = {"type": "string", "maxLength": 63, "pattern": "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"}
OBJECT_NAME = {"type": ["string", "null"], "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
STRING = {"type": ["string", "null"]}
COUNT = {"type": ["integer", "null"], "minimum": 0}
# The CronJob of a schedule; Kubernetes defines and validates its objects, times and zones.
SCHEDULE: Mapping[str, Any] = {
    "type": ["object", "null"],
    "properties": {
        "cron": STRING,
        "timeZone": STRING,
        "suspend": {"type": ["boolean", "null"]},
        "concurrencyPolicy": {"enum": ["", "Forbid", "Replace", "Allow", None]},
        "startingDeadlineSeconds": {"type": ["integer", "null"], "minimum": 10},
        "successfulJobsHistoryLimit": COUNT,
        "failedJobsHistoryLimit": COUNT,
        "ttlSecondsAfterFinished": COUNT,
        "serviceAccountName": OBJECT_NAME,
        "image": {
            "type": ["object", "null"],
            "properties": {"registry": STRING, "repository": STRING, "tag": STRING},
            "additionalProperties": False,
        },
        "resources": {"type": ["object", "null"]},
        "nodeSelector": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "tolerations": {"type": ["array", "null"], "items": {"type": "object"}},
    },
    "additionalProperties": False,
}
# Values that are not fields of the spec.
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "name": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", "maxLength": 54},
    "nameSuffixHash": {"type": "boolean"},
    "run": {"type": ["string", "number"]},
    "schedule": SCHEDULE,
    "experiment": LABEL,
    "queue": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 63},
    "priority": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 63},
    "labels": {"type": "object", "patternProperties": {KEY: LABEL}, "additionalProperties": False},
    "annotations": {"type": "object", "patternProperties": {KEY: {"type": "string"}}, "additionalProperties": False},
    "parameters": {
        "type": "object",
        "patternProperties": {r"^[A-Za-z0-9][\w.-]*$": {"type": TEXT}},
        "additionalProperties": False,
    },
    # A parent chart adds them to the values of its dependencies.
    "enabled": {"type": "boolean", "description": "Not read by this chart: the condition of a parent chart."},
    "global": {"type": "object", "description": "Not read by this chart: values that a parent chart shares."},
}


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema for a structural schema; it rejects unknown fields, which the API server would drop."""
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields", False)
    out = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-") and key != "default"}
    if "items" in out:
        out["items"] = closed(out["items"])
    if isinstance(out.get("additionalProperties"), dict):
        out["additionalProperties"] = closed(out["additionalProperties"])
    if "properties" in out:
        # Kubernetes defines objects with unknown fields, and the API server validates them.
        fields = {name: field for name, field in out["properties"].items() if "type" in field or not open_ended}
        out["properties"] = {name: closed(field) for name, field in fields.items()}
        out["additionalProperties"] = open_ended
    return out


def optional(schema: Mapping[str, Any], default: Any) -> dict[str, Any]:
    """The schema, extended by the default of the chart if this is empty, which means that the field is absent."""
    out = dict(schema)
    if default is None:
        out["type"] = [out["type"], "null"]
        out |= {"enum": [*out["enum"], None]} if "enum" in out else {}
    elif default == "":
        out.pop("minLength", None)
        out |= {"pattern": f"^$|{out['pattern']}"} if "pattern" in out else {}
        out |= {"enum": ["", *out["enum"]]} if "enum" in out else {}
    elif default in ({}, []):
        for key in ("required", "minItems"):
            out.pop(key, None)
    else:
        return out | _with_fields(out, default)
    return out


def _with_fields(schema: Mapping[str, Any], defaults: Any) -> dict[str, Any]:
    """The schema of an object whose fields have defaults in the chart."""
    if not isinstance(defaults, dict):
        return {}
    fields = {name: optional(field, defaults[name]) for name, field in schema["properties"].items() if name in defaults}
    return {"properties": {**schema["properties"], **fields}, "required": []}


def values_schema(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of the values; `defaults` are the values in the values.yaml of the chart."""
    spec = closed(schema_of(HorovodJobSpec))["properties"]
    variable = spec["env"]["items"]["properties"]
    value = {
        "type": [*TEXT, "object"],
        "properties": {"valueFrom": variable["valueFrom"]},
        "required": ["valueFrom"],
        "additionalProperties": False,
    }
    env = {
        "type": "object",
        "description": spec["env"]["description"],
        "patternProperties": {variable["name"]["pattern"]: value},
        "additionalProperties": False,
    }
    fields = {name: optional(field, defaults[name]) for name, field in spec.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart horovodjob",
        "type": "object",
        "properties": {**OTHERS, **fields, "env": env},
        "additionalProperties": False,
    }


def values_schema_json(chart: Path) -> str:
    """The content of values.schema.json of the chart."""
    return json.dumps(values_schema(yaml.safe_load((chart / "values.yaml").read_text())), indent=1) + "\n"


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    (directory / "values.schema.json").write_text(values_schema_json(directory))
