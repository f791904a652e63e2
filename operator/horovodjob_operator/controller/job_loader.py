"""Loads finished jobs from the API server when they need a reconciliation, because the process keeps little of them."""

import asyncio

from horovodjob.api.job import Metadata
from horovodjob_operator.controller.job_parsing import new_job_state
from horovodjob_operator.controller.job_state import JobState
from horovodjob_operator.controller.job_store import JobStore
from horovodjob_operator.domain.job_defaults import JobDefaults
from horovodjob_operator.errors import Gone
from horovodjob_operator.kube.cache import Key
from horovodjob_operator.kube.reader import Reader

MAX_CONCURRENT_LOADS = 8


class JobLoader:
    """Finds or loads the state of a job."""

    def __init__(self, store: JobStore, reader: Reader, defaults: JobDefaults) -> None:
        self._store, self._reader, self._defaults = store, reader, defaults
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_LOADS)

    async def state(self, key: Key) -> JobState | None:
        """The state of a job; None if the job is deleted. Raises Unavailable."""
        if key not in self._store.finished:
            return self._store.states.get(key)
        async with self._slots:
            try:
                raw = await self._reader.job(*key)
            except Gone:
                raw = None
        if key not in self._store.finished:  # The watch has reported a change meanwhile.
            return self._store.states.get(key)
        if raw is None or raw["metadata"]["uid"] != self._store.finished[key].uid:
            self._store.forget(key)
            return None
        state = new_job_state(raw, Metadata.model_validate(raw["metadata"]), self._defaults)
        self._store.keep(state)
        return state
