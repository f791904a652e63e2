"""What of a job's spec can change only while the job is suspended, and the admission policy that sees to it.

Rules of the schema would do as well, but the API server evaluates those at each write of the status, too: they doubled
its cost. A ValidatingAdmissionPolicy is bound to writes of the spec only.
"""

from typing import Any

from pydantic.alias_generators import to_camel

from horovodjob.api.constants import GROUP, PLURAL
from horovodjob.api.policies import RunPolicy
from horovodjob.api.replicas import Worker
from horovodjob.api.spec import HorovodJobSpec

POLICY = f"frozen-spec.{GROUP}"
# Of the run policy, what can change while the job runs, or has a rule of its own.
NOT_FROZEN = ("suspend", "ttl_seconds_after_finished", "terminate", "managed_by")
ONLY_WHILE_SUSPENDED = (
    " can change only while the job is suspended: set runPolicy.suspend to true first, or delete the job and create it "
    "anew"
)
# In the schema, because `kubectl scale` writes a subresource.
REPLICAS_RULE = {
    "rule": "self.runPolicy.suspend || oldSelf.runPolicy.suspend || has(self.elastic) || "
    "self.worker.replicas == oldSelf.worker.replicas",
    "message": f"worker.replicas{ONLY_WHILE_SUSPENDED} with spec.elastic, which lets it change at any time",
}


def frozen_fields() -> dict[str, list[str]]:
    """The fields that can change only while the job is suspended, by the field of the spec that they are in.

    That is "" for those of the spec itself. `worker.replicas` has `REPLICAS_RULE`.
    """
    return {
        "": [to_camel(name) for name in HorovodJobSpec.model_fields if name not in ("worker", "run_policy")],
        "worker": [to_camel(name) for name in Worker.model_fields if name != "replicas"],
        "runPolicy": [to_camel(name) for name in RunPolicy.model_fields if name not in NOT_FROZEN],
    }


def frozen_paths() -> list[str]:
    """The same, as paths."""
    return [_path(parent, name) for parent, names in frozen_fields().items() for name in names]


def policy() -> dict[str, Any]:
    """The ValidatingAdmissionPolicy; its message names the fields that differ."""
    changed = " + ".join(_changed(parent, names) for parent, names in frozen_fields().items())
    resource = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": [PLURAL],
        "scope": "*",
    }
    # With its defaults: the field is one for server-side apply, so two appliers of a shorter one would conflict.
    constraints = {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [resource],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": constraints,
            "matchConditions": [
                {
                    "name": "not-suspended",
                    "expression": "!oldObject.spec.runPolicy.suspend && !object.spec.runPolicy.suspend",
                }
            ],
            "variables": [{"name": "changed", "expression": changed}],
            "validations": [
                {
                    "expression": "size(variables.changed) == 0",
                    "messageExpression": f"variables.changed.join(', ') + '{ONLY_WHILE_SUSPENDED}'",
                    "reason": "Invalid",
                }
            ],
        },
    }


def binding() -> dict[str, Any]:
    """The ValidatingAdmissionPolicyBinding: the policy holds in all namespaces."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }


def _path(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _changed(parent: str, names: list[str]) -> str:
    """A CEL expression for the paths of the fields that differ; only what is `dyn` has fields by their names."""
    place = f"spec.{parent}" if parent else "spec"
    new, old = (f"dyn({version}.{place})" for version in ("object", "oldObject"))
    differs = f"(f in {new}) != (f in {old}) || f in {new} && {new}[f] != {old}[f]"
    return f"{names}.filter(f, {differs})" + (f".map(f, '{parent}.' + f)" if parent else "")
