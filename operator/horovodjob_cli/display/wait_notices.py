"""Notices of a command that waits: claims that are not bound, and a job that no operator has seen."""

import time
from collections.abc import Callable
from typing import Any

from horovodjob.api.constants import Phase
from horovodjob.api.managed_by import is_managed_by_operator
from horovodjob.client.cluster.claims import claim_names, unbound_claims

Object = dict[str, Any]
NOTICE_SECONDS = 10


class WaitNotices:
    """Calls `note` once with each sentence. It reads the claims of the job once, if the job is still queued then."""

    def __init__(self, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._note, self._clock = note, clock
        self._begin = clock()
        self._is_over = False

    def look(self, job: Object) -> None:
        """Call this each second."""
        if self._is_over or self._clock() - self._begin < NOTICE_SECONDS:
            return
        self._is_over = True
        status, metadata = job.get("status", {}), job["metadata"]
        if not status.get("phase") and is_managed_by_operator(job["spec"]):
            self._note("no operator has seen the job yet; `hvj doctor` shows what is missing")
        if (status.get("phase") or Phase.QUEUED) in (Phase.QUEUED, Phase.STARTING):
            for sentence in unbound_claims(claim_names(job["spec"].get("volumes", ())), metadata["namespace"]):
                self._note(sentence)
