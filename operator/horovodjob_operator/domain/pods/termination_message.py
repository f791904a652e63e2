"""What a start script writes to the termination message of its container. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import Reason
from horovodjob_operator.domain.foreign_text import clean_text
from horovodjob_operator.domain.pods.pod import ContainerTermination

# A program can write the message too, and must not set reasons that only the operator determines.
SCRIPT_REASONS = frozenset(
    {
        Reason.LAUNCHER_FAILED,
        Reason.PREPARATION_FAILED,
        Reason.SCRIPT_NOT_FOUND,
        Reason.SSH_UNAVAILABLE,
        Reason.WORKER_LOST,
        Reason.WORKER_OUT_OF_MEMORY,
    }
)


def termination_reason(termination: ContainerTermination) -> tuple[Reason, str] | None:
    """Reason and message that a start script wrote; None for the output of a program."""
    fields = _message_fields(termination)
    try:
        reason, message = Reason(fields["reason"]), clean_text(fields["message"])
    except (ValueError, KeyError):
        return None
    return (reason, message) if reason in SCRIPT_REASONS else None


def unreachable_hosts(termination: ContainerTermination) -> frozenset[str]:
    """Addresses of the workers that the launcher could not reach after mpirun failed."""
    return _hosts(termination, "unreachable")


def ended_hosts(termination: ContainerTermination) -> frozenset[str]:
    """Addresses of the workers that had no ssh server any more after mpirun failed."""
    return _hosts(termination, "ended")


def _hosts(termination: ContainerTermination, field: str) -> frozenset[str]:
    hosts = _message_fields(termination).get(field)
    return frozenset(hosts.split()) if isinstance(hosts, str) else frozenset()


def _message_fields(termination: ContainerTermination) -> Mapping[str, Any]:
    """Fields of the JSON object in the message; empty for the output of a program."""
    try:
        fields = json.loads(termination.message)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, Mapping) else {}
