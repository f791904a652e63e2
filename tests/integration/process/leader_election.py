"""Two operators, of which one leads and the other is on standby."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from support.api_client import Api, wait_for
from support.control_plane.operator_control_plane import (
    LEASE,
    OPERATOR_NAMESPACE,
    OperatorControlPlane,
    operator_kubeconfig,
)
from support.operator_process import Operator

Pair = tuple[Operator, Operator]


def unchanged(kubeconfig: Path) -> Path:
    """The kubeconfig of an operator without a proxy."""
    return kubeconfig


@contextlib.contextmanager
def leader_and_standby(api: Api, directory: Path, reach_standby: Callable[[Path], Path] = unchanged) -> Iterator[Pair]:
    """A leader and a standby; `reach_standby` can direct the connections of the standby through a proxy."""
    if api.find(LEASE):
        api.delete(LEASE)
    # Each has its own token, to distinguish them in the audit log.
    accesses = [operator_kubeconfig(api, directory / f"{name}.yaml") for name in ("one", "two")]
    one, two = (
        Operator(way(access), access.with_suffix(".log"), identity=access.stem, lease_namespace=OPERATOR_NAMESPACE)
        for way, access in zip((unchanged, reach_standby), accesses, strict=True)
    )
    try:
        one.start()
        wait_for("a leader", lambda: one.is_leader)
        two.start()
        yield one, two
    finally:
        for each in (one, two):
            each.kill()


def lease(api: Api) -> dict[str, str]:
    """The spec of the Lease."""
    spec: dict[str, str] = api.get(LEASE)["spec"]
    return spec


def credential_of(kubeconfig: Path) -> str:
    """ID of the token in a kubeconfig, as in the audit log."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"].split(".")[1]
    return f"JTI={json.loads(base64.urlsafe_b64decode(token + '=='))['jti']}"


def requests_of(control_plane: OperatorControlPlane, credential: str) -> list[str]:
    """The requests with this token, as `verb resource`. A watch is among them when it has begun."""
    lines = control_plane.audit_log.read_text().splitlines(keepends=True)
    entries = [json.loads(line) for line in lines if credential in line and line.endswith("\n")]
    return [f"{e['verb']} {e.get('objectRef', {}).get('resource', '')}" for e in entries]


def writes(control_plane: OperatorControlPlane, credential: str) -> list[str]:
    """The write requests with this token, as `verb resource`."""
    reads = ("get", "list", "watch")
    return [request for request in requests_of(control_plane, credential) if request.split()[0] not in reads]
