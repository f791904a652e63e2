"""The fields of the spec that can change only while the job is suspended, and the admission policy that enforces it.

The API server evaluates rules of the schema at each write of the status too, which doubled its cost. It evaluates the
ValidatingAdmissionPolicy only at writes of the spec.
"""

from typing import Any

from pydantic.alias_generators import to_camel

from horovodjob.api.constants import GROUP, PLURAL
from horovodjob.api.policies import RunPolicy
from horovodjob.api.replicas import Worker
from horovodjob.api.spec import HorovodJobSpec

POLICY = f"frozen-spec.{GROUP}"
# Fields of the run policy that can change while the job runs, or have a rule of their own.
NOT_FROZEN = ("suspend", "ttl_seconds_after_finished", "terminate", "managed_by")
ONLY_WHILE_SUSPENDED = (
    " can change only while the job is suspended: set runPolicy.suspend to true first, or delete the job and create it "
    "again"
)
# In the schema, because `kubectl scale` writes a subresource, which the policy does not match.
REPLICAS_RULE = {
    "rule": "self.runPolicy.suspend || oldSelf.runPolicy.suspend || has(self.elastic) || "
    "self.worker.replicas == oldSelf.worker.replicas",
    "message": f"worker.replicas{ONLY_WHILE_SUSPENDED} with spec.elastic, which lets it change at any time",
}


def frozen_fields() -> dict[str, list[str]]:
    """The fields that can change only while the job is suspended, by their parent; "" is the spec itself.

    `worker.replicas` has `REPLICAS_RULE`.
    """
    return {
        "": [to_camel(name) for name in HorovodJobSpec.model_fields if name not in ("worker", "run_policy")],
        "worker": [to_camel(name) for name in Worker.model_fields if name != "replicas"],
        "runPolicy": [to_camel(name) for name in RunPolicy.model_fields if name not in NOT_FROZEN],
    }


def frozen_paths() -> list[str]:
    """The paths of these fields."""
    return [_path(parent, name) for parent, names in frozen_fields().items() for name in names]


def policy() -> dict[str, Any]:
    """The ValidatingAdmissionPolicy, with a message that names the changed fields."""
    changed = " + ".join(_changed(parent, names) for parent, names in frozen_fields().items())
    resource = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": [PLURAL],
        "scope": "*",
    }
    # With all defaults: server-side apply treats the field as atomic, so appliers without them would conflict.
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
    """The ValidatingAdmissionPolicyBinding: the policy applies to all namespaces."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }


def _path(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _changed(parent: str, names: list[str]) -> str:
    """A CEL expression for the paths of the changed fields; `dyn` allows access to fields by name."""
    place = f"spec.{parent}" if parent else "spec"
    new, old = (f"dyn({version}.{place})" for version in ("object", "oldObject"))
    differs = f"(f in {new}) != (f in {old}) || f in {new} && {new}[f] != {old}[f]"
    return f"{names}.filter(f, {differs})" + (f".map(f, '{parent}.' + f)" if parent else "")
