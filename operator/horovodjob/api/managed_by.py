"""The controller of a job, for readers of stored jobs."""

from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import MULTIKUEUE_NAME, OPERATOR_NAME


def is_managed_by_operator(spec: Mapping[str, Any]) -> bool:
    """Whether the operator controls a job with this stored spec."""
    # Jobs of earlier releases name their controller in the run policy.
    manager = spec.get("managedBy") or (spec.get("runPolicy") or {}).get("managedBy")
    return manager in (None, OPERATOR_NAME)


def is_dispatched(spec: Mapping[str, Any]) -> bool:
    """Whether MultiKueue dispatches a job with this stored spec to another cluster, which runs it."""
    return bool(spec.get("managedBy") == MULTIKUEUE_NAME)
