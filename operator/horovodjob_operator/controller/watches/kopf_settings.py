"""Settings of kopf, which only lists and watches HorovodJobs."""

import itertools
from collections.abc import Iterator
from typing import Any

import kopf

from horovodjob.api.constants import GROUP, PLURAL, VERSION
from horovodjob_operator.kube.requests.api_client import LIST_CHUNK
from horovodjob_operator.kube.watches.object_watch import silence_seconds

# Between a watch that the API server refuses because it no longer has the version, and the list of all jobs.
RELIST_SECONDS = 1.0


class EndlessBackoffs:
    """Delays between the tries of a request of kopf, in seconds.

    Kopf ends after the last delay: a namespace without rights would end the operator for all namespaces.
    """

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 2, 5, 10), itertools.repeat(20))


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last handled configuration. By default kopf copies the whole object at each event to compare it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing to compare."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Nothing is stored."""

    def store(self, **_: Any) -> None:
        """Stores nothing."""


def kopf_settings(timeout_seconds: int) -> kopf.OperatorSettings:
    """Settings without annotations, finalizers, scans of all resources and events of kopf."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.chunk_size = LIST_CHUNK
    settings.watching.server_timeout = timeout_seconds
    settings.watching.client_timeout = timeout_seconds + 30
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = RELIST_SECONDS
    settings.watching.inactivity_timeout = silence_seconds(timeout_seconds)
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.queueing.idle_timeout = 1
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.persistence.diffbase_storage = NoDiffBase()
    return settings


def register(registry: kopf.OperatorRegistry) -> None:
    """Registers a handler that does nothing, because of which kopf lists and watches HorovodJobs.

    The middlewares of kopf's session handle the objects when they arrive. Kopf would parse and copy each of them again,
    and run a task for it.
    """

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def job_event(**_: Any) -> None:
        pass
