"""The Secrets that pods mount: the ssh keys of a job, and the start scripts of this release."""

import base64
from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import OPERATOR_APP_NAME, Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.parts.metadata import object_metadata
from horovodjob_operator.start_scripts import SCRIPTS


def keys_secret(job: HorovodJob, keys: Mapping[str, str]) -> dict[str, Any]:
    """The ssh keys of the job."""
    return _immutable_secret(object_metadata(job, names.secret_names(job)[0], "keys"), keys)


def scripts_secret(namespace: str) -> dict[str, Any]:
    """The start scripts, for all jobs of a namespace.

    They run with the rights of every job, and who can write Secrets there can create this one in advance: its name
    has their digest, which the command of each pod verifies.
    """
    labels = {
        "app.kubernetes.io/name": "horovodjob",
        "app.kubernetes.io/component": "start-scripts",
        "app.kubernetes.io/managed-by": OPERATOR_APP_NAME,
    }
    return _immutable_secret({"name": names.SCRIPTS_SECRET, "namespace": namespace, "labels": labels}, SCRIPTS)


def _immutable_secret(metadata: dict[str, Any], contents: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in contents.items()},
    }


def secret_volume(secret_names: tuple[str, ...], role: Role) -> dict[str, Any]:
    """The volume with the keys and start scripts that pods of the role need."""
    projected = {"sources": _sources(secret_names, role), "defaultMode": 0o444}
    return {"name": names.SECRET_VOLUME, "projected": projected}


def _sources(secret_names: tuple[str, ...], role: Role) -> list[dict[str, Any]]:
    keys, scripts = secret_names[0], secret_names[-1]
    if role is Role.LAUNCHER:
        return [{"secret": {"name": keys}}, {"secret": {"name": scripts}}]
    # Workers only accept connections, so the private user key stays with the launcher.
    key_files = [{"key": key, "path": key} for key in (names.HOST_KEY, names.AUTHORIZED_KEYS)]
    # An attempt keeps its first scripts. Before releases that verify them, the Secret could have the keys too.
    is_older = {"items": [{"key": key, "path": key} for key in SCRIPTS], "optional": True}
    return [
        {"secret": {"name": keys, "items": key_files}},
        {"secret": {"name": scripts, **({} if names.scripts_digest(scripts) else is_older)}},
    ]
