"""Leader election by a Lease (coordination.k8s.io): one process acts, another may stand by with warm caches."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import kopf

from horovodjob_operator.cluster.connection import Connection
from horovodjob_operator.errors import ClusterError, Gone
from horovodjob_operator.loop_thread import LoopThread

LEASE_SECONDS = 12
# A leader that could not renew it for so long ends: some time before another process may lead.
RENEW_DEADLINE_SECONDS = 9
RENEW_SECONDS = 3
RETRY_SECONDS = 1
log = logging.getLogger("horovodjob.lease")


class Lease:
    """Acquires the Lease, and renews it. Runs on an event loop of its own, which no other work delays.

    `on_acquired` is called once, on that loop, when this process becomes the leader.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], datetime],
        on_acquired: Callable[[], object],
    ) -> None:
        self._connection, self._identity, self._clock, self._on_acquired = connection, identity, clock, on_acquired
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._lease: dict[str, Any] = {}
        self._seen: tuple[Any, float] = (None, 0.0)
        self._renewed_at = 0.0
        self.is_held = False
        """Whether this process is the leader."""

    async def run(self) -> None:
        """Gets the Lease and keeps it; returns when it is lost, because another process may be acting already."""
        while True:
            pause = RETRY_SECONDS
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._step()
                if self.is_held:
                    pause = RENEW_SECONDS
            except (ClusterError, TimeoutError) as error:
                log.warning("lease: %s", error or "the API server did not answer in time")
                # Somebody else may have written it: what we hold of it is read again before the next try.
                self._lease = {}
            if self.is_held and time.monotonic() - self._renewed_at > RENEW_DEADLINE_SECONDS:
                self.is_held = False
                log.error("lease: lost, because it could not be renewed for %d s", RENEW_DEADLINE_SECONDS)
                return
            await asyncio.sleep(pause)

    async def _step(self) -> None:
        started = time.monotonic()
        if not self.is_held or not self._lease:
            try:
                self._lease = await self._connection.request("GET", f"{self._collection}/{self._name}")
            except Gone:
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
                self._lease = await self._connection.request("POST", self._collection, {**body, "spec": self._spec()})
                self._renewed_at = started
                self._acquired()
                return
            if not self._free():
                return
        body = {**self._lease, "spec": {**self._lease.get("spec", {}), **self._spec()}}
        self._lease = await self._connection.request("PUT", f"{self._collection}/{self._name}", body)
        self._renewed_at = started
        if not self.is_held:
            self._acquired()

    @property
    def current(self) -> bool:
        """Whether this process is the leader, and renewed the Lease recently enough that no other can be.

        Time counts while the process is stopped, so it is asked before each write.
        """
        return self.is_held and time.monotonic() - self._renewed_at <= RENEW_DEADLINE_SECONDS

    def _free(self) -> bool:
        """Whether nobody renews it: the holder let go, is us, or has been silent for its time by our own clock."""
        spec = self._lease.get("spec", {})
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        sign = (spec.get("holderIdentity"), spec.get("renewTime"))
        if sign != self._seen[0]:
            self._seen = (sign, time.monotonic())
        return time.monotonic() - self._seen[1] > float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _spec(self) -> dict[str, Any]:
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        fresh = {} if self.is_held else {"acquireTime": now}
        return {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now, **fresh}

    def _acquired(self) -> None:
        self.is_held = True
        log.info("lease: %s is the leader", self._identity)
        self._on_acquired()

    async def release(self) -> None:
        """Lets go, so that another process takes over at once."""
        if not self.is_held or not self._lease:
            return
        self.is_held = False
        body = {**self._lease, "spec": {**self._lease.get("spec", {}), "holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await self._connection.request("PUT", f"{self._collection}/{self._name}", body)
        except ClusterError as error:
            log.warning("lease: could not be released: %s", error)


@contextlib.asynccontextmanager
async def lease_connection(access: kopf.ConnectionInfo) -> AsyncIterator[tuple[LoopThread, Connection]]:
    """A thread for the Lease with a connection of its own, so that it is renewed whatever the load.

    It does not pause with the others: a small request in three seconds is no load, and a leader that misses its
    deadline makes another list everything.
    """

    async def connect() -> Connection:
        return Connection(access, limit=1)  # belongs to the loop on which it is made

    thread = LoopThread("lease")
    connection = await thread.run(connect())
    try:
        yield thread, connection
    finally:
        await thread.run(connection.aclose())
        await thread.stop()
