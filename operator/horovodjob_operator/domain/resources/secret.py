"""The Secret with the ssh keys and start scripts of a job."""

import base64
from collections.abc import Mapping
from typing import Any

from horovodjob.api.constants import Role
from horovodjob.api.job import HorovodJob
from horovodjob_operator.domain import names
from horovodjob_operator.domain.resources.metadata import object_metadata

WORKER_SCRIPTS = (
    "environment.sh",
    "prepare.sh",
    "rank.sh",
    "ranks.sh",
    "script.sh",
    "session.sh",
    "sshd_config.sh",
    "worker.sh",
)


def job_secret(job: HorovodJob, contents: Mapping[str, str]) -> dict[str, Any]:
    """The keys and start scripts of the job, immutable."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": object_metadata(job, names.secret_name(job), "keys"),
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in contents.items()},
    }


def secret_volume(name: str, role: Role) -> dict[str, Any]:
    """The volume with the parts of the Secret that pods of the role need."""
    projected = {"sources": _sources(name, role), "defaultMode": 0o444}
    return {"name": names.SECRET_VOLUME, "projected": projected}


def _sources(name: str, role: Role) -> list[dict[str, Any]]:
    if role is Role.LAUNCHER:
        return [{"secret": {"name": name}}]
    # Workers only accept connections, so the private user key stays with the launcher.
    keys = [{"key": key, "path": key} for key in (names.HOST_KEY, names.AUTHORIZED_KEYS)]
    scripts = [{"key": key, "path": key} for key in WORKER_SCRIPTS]
    # An attempt keeps its first scripts, so a newer operator must accept that newer scripts are not among them.
    return [{"secret": {"name": name, "items": keys}}, {"secret": {"name": name, "items": scripts, "optional": True}}]
