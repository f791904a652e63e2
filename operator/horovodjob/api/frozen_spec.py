"""When the fields of the spec can change, and the admission policy that enforces it.

Most fields can change only while the job is suspended, and none but `ttlSecondsAfterFinished` after the job has ended.

The API server evaluates rules of the schema at each write of the status too, which doubled its cost. It evaluates the
ValidatingAdmissionPolicy only at writes of the spec.
"""

from typing import Any

from pydantic.alias_generators import to_camel

from horovodjob.api.constants import GROUP, PLURAL, Phase
from horovodjob.api.policies import RunPolicy
from horovodjob.api.replicas import Worker
from horovodjob.api.spec import HorovodJobSpec

POLICY = f"frozen-spec.{GROUP}"
# They have rules of their own.
NOT_FROZEN_IN_SPEC = ("worker", "run_policy", "managed_by")
# Fields of the run policy that can change while the job runs, or have a rule of their own.
NOT_FROZEN = ("suspend", "ttl_seconds_after_finished", "terminate", "managed_by")
ONLY_WHILE_SUSPENDED = (
    " can change only while the job is suspended: set runPolicy.suspend to true first, or delete the job and create it "
    "again"
)
NOT_AFTER_THE_END = (
    " cannot change, because the job has ended and never runs again: create a job with another name, or delete this "
    "one first"
)
FINAL_PHASES = [phase.value for phase in Phase if phase.is_finished]


def _has_ended(job: str) -> str:
    """A CEL expression for whether this version of the job has ended."""
    return f"has({job}.status) && has({job}.status.phase) && {job}.status.phase in {FINAL_PHASES}"


def _is_suspended(old: str, new: str) -> str:
    return f"{old}.spec.runPolicy.suspend || {new}.spec.runPolicy.suspend"


# In the schema, because `kubectl scale` writes a subresource, which the policy does not match.
REPLICAS_RULE = {
    "rule": "self.spec.worker.replicas == oldSelf.spec.worker.replicas || "
    f"!({_has_ended('oldSelf')}) && ({_is_suspended('oldSelf', 'self')} || has(self.spec.elastic))",
    "messageExpression": f"'worker.replicas' + ({_has_ended('oldSelf')} ? '{NOT_AFTER_THE_END}' : "
    f"'{ONLY_WHILE_SUSPENDED} with spec.elastic, which lets it change at any time')",
    "fieldPath": ".spec.worker.replicas",
}


def frozen_fields() -> dict[str, list[str]]:
    """The fields that can change only while the job is suspended, by their parent; "" is the spec itself.

    `worker.replicas` has `REPLICAS_RULE`.
    """
    return {
        "": [to_camel(name) for name in HorovodJobSpec.model_fields if name not in NOT_FROZEN_IN_SPEC],
        "worker": [to_camel(name) for name in Worker.model_fields if name != "replicas"],
        "runPolicy": [to_camel(name) for name in RunPolicy.model_fields if name not in NOT_FROZEN],
    }


def frozen_paths() -> list[str]:
    """The paths of these fields."""
    return [_path(parent, name) for parent, names in frozen_fields().items() for name in names]


def policy() -> dict[str, Any]:
    """The ValidatingAdmissionPolicy, with a message that names the changed fields."""
    frozen = " + ".join(_changed(parent, names) for parent, names in frozen_fields().items())
    others = f"{_changed('worker', ['replicas'])} + {_changed('runPolicy', _changeable_before_the_end())}"
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
            "variables": [
                {"name": "hasEnded", "expression": _has_ended("oldObject")},
                {"name": "isSuspended", "expression": _is_suspended("oldObject", "object")},
                {"name": "frozen", "expression": frozen},
                {"name": "others", "expression": others},
                {
                    "name": "refused",
                    "expression": "variables.hasEnded ? variables.frozen + variables.others : "
                    "variables.isSuspended ? [] : variables.frozen",
                },
            ],
            "validations": [
                {
                    "expression": "size(variables.refused) == 0",
                    "messageExpression": "variables.refused.join(', ') + "
                    f"(variables.hasEnded ? '{NOT_AFTER_THE_END}' : '{ONLY_WHILE_SUSPENDED}')",
                    # 403. With 422 (Invalid), `kubectl apply --force`, and Flux with `force`, delete the job.
                    "reason": "Forbidden",
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


def _changeable_before_the_end() -> list[str]:
    """The fields of the run policy that can change until the job has ended."""
    return [to_camel(name) for name in NOT_FROZEN if name != "ttl_seconds_after_finished"]


def _path(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _changed(parent: str, names: list[str]) -> str:
    """A CEL expression for the paths of the changed fields; `dyn` allows access to fields by name."""
    place = f"spec.{parent}" if parent else "spec"
    new, old = (f"dyn({version}.{place})" for version in ("object", "oldObject"))
    differs = f"(f in {new}) != (f in {old}) || f in {new} && {new}[f] != {old}[f]"
    return f"{names}.filter(f, {differs})" + (f".map(f, '{parent}.' + f)" if parent else "")
