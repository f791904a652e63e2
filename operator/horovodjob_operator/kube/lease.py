"""Leader election by a Lease (coordination.k8s.io): one replica reconciles, the others wait."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any

import kopf

from horovodjob_operator.errors import ClusterError, Conflict, Gone
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.loop_thread import LoopThread

LEASE_SECONDS = 12
# A leader that cannot renew the Lease for this time ends, before another replica can become the leader.
RENEW_DEADLINE_SECONDS = 9
RENEW_SECONDS = 3
RETRY_SECONDS = 1
# Time for one request. It doubles while the API server does not answer in time, because a new connection takes several
# round trips; a connection that is half-open costs only the first time.
REQUEST_SECONDS, LONGEST_REQUEST_SECONDS = 3.0, 12.0
log = logging.getLogger("horovodjob.lease")


class Lease:
    """Acquires and renews the Lease, on an event loop that nothing else uses.

    It calls `on_acquired` once, on that loop, when this process becomes the leader.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], datetime],
        on_acquired: Callable[[], object],
    ) -> None:
        self._client, self._identity, self._clock, self._on_acquired = client, identity, clock, on_acquired
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._lease: dict[str, Any] = {}
        self._observed: tuple[Any, float] = (None, 0.0)
        """Holder and time of renewal in the Lease, and since when they are unchanged, on the monotonic clock."""
        self._renewed_at = 0.0
        self._request_seconds = REQUEST_SECONDS
        self.is_held = False
        """Whether this process is the leader."""

    async def run(self) -> None:
        """Acquires the Lease and renews it; returns when it is lost, because another replica may be the leader."""
        while True:
            started, pause = time.monotonic(), float(RETRY_SECONDS)
            try:
                await self._acquire_or_renew()
                if self.is_held:
                    # From the start of the request, because the deadline runs from there.
                    pause = max(started + RENEW_SECONDS - time.monotonic(), 0)
            except (ClusterError, TimeoutError) as error:
                log.warning("lease: %s", error or "the API server did not answer in time")
            if self.is_held and time.monotonic() - self._renewed_at > RENEW_DEADLINE_SECONDS:
                self.is_held = False
                log.error("lease: lost, because it could not be renewed for %d s", RENEW_DEADLINE_SECONDS)
                return
            await asyncio.sleep(pause)

    async def _acquire_or_renew(self) -> None:
        """Writes the version of the Lease that this process knows; reads it if that is not the newest one.

        An error of a request keeps the known version: with a slow API server there is no time for both requests.
        """
        if self.is_held and self._lease:
            with contextlib.suppress(Conflict, Gone):  # Or the response to the last write was lost.
                await self._renew()
                return
        try:
            self._lease = await self._request("GET", f"{self._collection}/{self._name}")
        except Gone:
            self._lease = {}
        if not self._lease or self._is_free():
            await self._renew()

    async def _renew(self) -> None:
        started = time.monotonic()
        await self._write(self._spec())
        self._renewed_at = started
        if not self.is_held:
            self.is_held = True
            log.info("lease: %s is the leader", self._identity)
            self._on_acquired()

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Sends a request with a time limit, for a leader at most its deadline. Raises ClusterError, TimeoutError."""
        left = self._renewed_at + RENEW_DEADLINE_SECONDS - time.monotonic() if self.is_held else LONGEST_REQUEST_SECONDS
        try:
            async with asyncio.timeout(min(self._request_seconds, max(left, RETRY_SECONDS))):
                answer = await self._client.request(method, path, body)
        except TimeoutError:
            self._request_seconds = min(self._request_seconds * 2, LONGEST_REQUEST_SECONDS)
            raise
        self._request_seconds = REQUEST_SECONDS
        return answer

    async def _write(self, changes: Mapping[str, Any]) -> None:
        """Creates the Lease, or changes the version of it that was read last."""
        new = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
        method, path = ("PUT", f"{self._collection}/{self._name}") if self._lease else ("POST", self._collection)
        body = {**(self._lease or new), "spec": {**self._lease.get("spec", {}), **changes}}
        self._lease = await self._request(method, path, body)

    @property
    def is_current(self) -> bool:
        """Whether this process is the leader, and has renewed the Lease so recently that no other replica can be.

        Time also passes while the process is stopped, so each write requires this.
        """
        return self.is_held and time.monotonic() - self._renewed_at <= RENEW_DEADLINE_SECONDS

    def _is_free(self) -> bool:
        """Whether nobody renews the Lease: the holder released it, is this process, or has not renewed it in time."""
        spec = self._lease.get("spec", {})
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        renewal = (spec.get("holderIdentity"), spec.get("renewTime"))
        if renewal != self._observed[0]:
            self._observed = (renewal, time.monotonic())
        return time.monotonic() - self._observed[1] > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _spec(self) -> dict[str, Any]:
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        acquired = {} if self.is_held else {"acquireTime": now}
        return {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now, **acquired}

    async def release(self) -> None:
        """Releases the Lease, so that another replica takes over at once."""
        if not self.is_held or not self._lease:
            return
        self.is_held = False
        try:
            await self._write({"holderIdentity": "", "leaseDurationSeconds": 1})
        except (ClusterError, TimeoutError) as error:
            log.warning("lease: could not be released: %s", error or "the API server did not answer in time")


@contextlib.asynccontextmanager
async def lease_client(info: kopf.ConnectionInfo) -> AsyncIterator[tuple[LoopThread, ApiClient]]:
    """A thread for the Lease with its own client, so that the Lease is renewed whatever the load.

    The client ignores Retry-After: a small request every three seconds is no load, and a leader that misses its
    deadline causes new lists by the next one.
    """

    async def connect() -> ApiClient:
        return ApiClient(info, limit=1)  # belongs to the event loop that creates it

    thread = LoopThread("lease")
    client = await thread.run(connect())
    try:
        yield thread, client
    finally:
        await thread.run(client.aclose())
        await thread.stop()
