"""Names of the cluster's objects, for the completion of options. Without an answer of the cluster there are none."""

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import typer

from horovodjob.api.constants import LABEL_EXPERIMENT
from horovodjob.batchai.names import ANNOTATION_NAME
from horovodjob.client.cluster import kube

# Seconds to connect and to wait for the response: a shell waits for the completion.
TIMEOUT = (1, 3)
LIMIT = 500


def completion_of(parameter: str) -> Callable[..., list[str]] | None:
    """The completion of a parameter with this name; that of `name` depends on the group of its command."""
    return COMPLETIONS.get(parameter)


def _jobs(context: typer.Context) -> list[Any]:
    found = kube.custom().list_namespaced_custom_object(
        **kube.JOBS, namespace=_namespace(context), limit=LIMIT, _request_timeout=TIMEOUT
    )
    return list(found["items"])


def _job_names(context: typer.Context) -> list[str]:
    found = [job["metadata"] for job in _jobs(context)]
    return [each.get("annotations", {}).get(ANNOTATION_NAME) or each["name"] for each in found]


def _experiment_names(context: typer.Context) -> list[str]:
    labels = (job["metadata"].get("labels", {}).get(LABEL_EXPERIMENT) for job in _jobs(context))
    return [label for label in labels if label]


def _namespace_names(context: typer.Context) -> list[str]:
    found = kube.core().list_namespace(limit=LIMIT, _request_timeout=TIMEOUT)
    return [namespace.metadata.name for namespace in found.items]


def _pool_names(context: typer.Context) -> list[str]:
    from horovodjob.client.cluster import node_pools

    found = kube.plain(kube.core().list_node(limit=LIMIT, _request_timeout=TIMEOUT))
    return list(node_pools.pools(found["items"]))


PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
BY_GROUP: dict[str, Callable[[typer.Context], list[str]]] = {
    "job": _job_names,
    "experiment": _experiment_names,
    "workspace": _namespace_names,
    "cluster": _pool_names,
}


def _own_names(context: typer.Context) -> list[str]:
    """Existing names of the group's objects; a new object has another name."""
    if context.info_name == "create":
        return []
    place: Any = context.parent
    while place is not None:
        if names := BY_GROUP.get(place.info_name):
            return names(context)
        place = place.parent
    return []


def _completing(names: Callable[[typer.Context], Iterable[str]]) -> Callable[..., list[str]]:
    """A completion for typer. It shows no error, because the command itself reports it.

    The author of a job chooses its name, and a shell would run what is in `$(...)`.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        with contextlib.suppress(Exception):
            kube.choose(_given(ctx, "kubeconfig"), _given(ctx, "context"))
            return sorted({name for name in names(ctx) if name.startswith(incomplete) and PLAIN.fullmatch(name)})
        return []

    return complete


def _given(context: typer.Context, option: str) -> str | None:
    """The value of an option of the command, or of the program."""
    return context.params.get(option) or context.find_root().params.get(option)


def _namespace(context: typer.Context) -> str:
    return kube.namespace(context.params.get("namespace") or context.params.get("workspace"))


COMPLETIONS = {
    "name": _completing(_own_names),
    "job": _completing(_job_names),
    "experiment": _completing(_experiment_names),
    "namespace": _completing(_namespace_names),
    "workspace": _completing(_namespace_names),
    "cluster": _completing(_pool_names),
}
