"""What checks read and return: objects that the user may read, the job to check for, and results."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from horovodjob.api.spec import HorovodJobSpec
from horovodjob.client.cluster import kube

Object = dict[str, Any]


class Outcome(StrEnum):
    """Effect of a check result on a job."""

    OK = "ok"
    WARNING = "warning"
    BLOCKS = "blocks"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One sentence about the cluster, and the command that fixes the problem that it names."""

    check: str
    outcome: Outcome
    message: str
    command: str | None = None

    def record(self) -> dict[str, Any]:
        return {"check": self.check, "result": self.outcome.value, "message": self.message, "command": self.command}


class Forbidden(Exception):
    """The user may not read this."""


@dataclass(frozen=True)
class Facts:
    """A namespace, an optional job, and the objects of the cluster, each read once.

    Without a job, the checks assume one with GPUs and a share on Azure Files.
    """

    namespace: str
    job: Object | None
    spec: HorovodJobSpec | None
    secrets: tuple[Object, ...]
    """Secrets that are created together with the job."""
    now: datetime

    @functools.cached_property
    def nodes(self) -> list[Object]:
        return self.list("/api/v1/nodes")

    @functools.cached_property
    def daemon_sets(self) -> list[Object]:
        return self.list("/apis/apps/v1/daemonsets")

    def list(self, path: str, selector: str = "") -> list[Object]:
        """The objects of a collection."""
        found = self.get(path, labelSelector=selector)
        return list(found["items"]) if found else []

    def get(self, path: str, **query: str) -> Object | None:
        """The object at this path, or None if there is none. Raises Forbidden."""
        text = self.text(path, **query)
        return None if text is None else dict(json.loads(text))

    def text(self, path: str, **query: str) -> str | None:
        """The response of the API server to a GET; None for 404. Raises Forbidden.

        A job can name a Secret `../../other/secrets/x`, which the client would resolve to another path.
        """
        from kubernetes.client import ApiException

        if {"", ".", ".."} & set(path[1:].split("/")):  # no object has such a name
            return None
        path = quote(path, safe="/:")
        client = kube.client()
        request = client.param_serialize(
            "GET", path, query_params=[*query.items()], header_params={"Accept": "*/*"}, auth_settings=["BearerToken"]
        )
        response = client.call_api(*request, _request_timeout=30)
        text = response.read().decode(errors="replace")
        if response.status == 404:
            return None
        if response.status == 403:
            raise Forbidden(f"you may not read {path}")
        if response.status >= 400:
            raise ApiException(status=response.status, reason=response.reason)
        return str(text)

    @property
    def subject(self) -> str:
        """The job as the subject of a message."""
        return f"job {self.job['metadata']['name']}" if self.job else "a job"


def matches(labels: Object, selector: Object) -> bool:
    """Whether a node selector matches these labels."""
    return all(labels.get(key) == value for key, value in selector.items())


def join_names(things: Sequence[str], limit: int = 3) -> str:
    """The first `limit` names, and the number of the others."""
    more = f" and {len(things) - limit} more" if len(things) > limit else ""
    return ", ".join(things[:limit]) + more


def current_time() -> datetime:
    """The time of this run; checks get it as an argument."""
    return datetime.now(UTC)  # noqa: TID251
