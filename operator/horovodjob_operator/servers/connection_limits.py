"""A server that limits the number, the rate and the duration of its connections, in total and for each address."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web

# A report is one small request on its own connection. Many pods can have the address of their node.
CONNECTION_SECONDS = 5
MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 256, 32
MAX_RATE, MAX_RATE_PER_ADDRESS = 500, 50
"""New connections per second."""


class LimitedServer(web.Server):
    """An HTTP server with limits.

    An address with many connections never excludes an address with few. The first connection of an address in a second
    is always accepted. If all connections are in use, the oldest one of the address with the most is closed.
    """

    def __init__(self, respond: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> None:
        # Requests of unknown clients cause no errors of the operator, so the messages of aiohttp are dropped.
        silent = logging.getLogger("horovodjob.progress.http")
        silent.disabled = True
        super().__init__(respond, access_log=None, logger=silent, auto_decompress=False, lingering_time=0)
        self._open: dict[str, dict[web.RequestHandler, asyncio.Transport]] = {}
        self._timeouts: dict[web.RequestHandler, tuple[str, asyncio.TimerHandle]] = {}
        self._second = 0
        self._accepted_in_second: Counter[str] = Counter()

    def __call__(self) -> web.RequestHandler:
        """The protocol of the next connection."""
        return _UnacceptedConnection(self)  # type: ignore[return-value]

    def accepted_handler(self) -> web.RequestHandler:
        """The protocol of an accepted connection."""
        return super().__call__()

    def accepts(self, address: str) -> bool:
        """Whether the limits permit a new connection of the address, which is then counted."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._second = second
            self._accepted_in_second.clear()
        accepted = self._accepted_in_second[address]
        if accepted >= MAX_RATE_PER_ADDRESS or len(self._open.get(address, ())) >= MAX_CONNECTIONS_PER_ADDRESS:
            return False
        if accepted and self._accepted_in_second.total() >= MAX_RATE:
            return False
        self._accepted_in_second[address] += 1
        return True

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Starts the timeout of a connection, and closes another one if there are too many."""
        super().connection_made(handler, transport)
        if len(self._timeouts) >= MAX_CONNECTIONS:
            oldest, its_transport = next(iter(max(self._open.values(), key=len).items()))
            self._remove(oldest)
            its_transport.abort()
        address = remote_address(transport)
        self._open.setdefault(address, {})[handler] = transport
        timeout = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, transport.abort)
        self._timeouts[handler] = (address, timeout)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Removes a closed connection."""
        super().connection_lost(handler, exc)
        self._remove(handler)

    def _remove(self, handler: web.RequestHandler) -> None:
        """Stops counting a connection, and cancels its timeout: a closed transport must not be aborted again."""
        if handler not in self._timeouts:
            return
        address, timeout = self._timeouts.pop(handler)
        timeout.cancel()
        del self._open[address][handler]
        if not self._open[address]:
            del self._open[address]


class _UnacceptedConnection(asyncio.Protocol):
    """A new connection: its address is known only when it is made."""

    def __init__(self, server: LimitedServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Passes the connection to the server, or closes it."""
        if not self._server.accepts(remote_address(transport)):
            transport.abort()
            return
        handler = self._server.accepted_handler()
        transport.set_protocol(handler)
        handler.connection_made(transport)


def remote_address(transport: asyncio.Transport) -> str:
    """The address of the client; empty if the connection is already closed."""
    return str((transport.get_extra_info("peername") or ("",))[0])
