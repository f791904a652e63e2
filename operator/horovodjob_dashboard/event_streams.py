"""Server-sent events: how a page learns of changes and follows a log."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator

from aiohttp import web

from horovodjob.client.errors import ClientError, translated
from horovodjob_dashboard.access_guard import HEADERS
from horovodjob_dashboard.pages import VIEWER
from horovodjob_dashboard.viewer import Viewer

# A stream without a message for this long says that it lives; proxies end silent ones.
HEARTBEAT_SECONDS = 20
STREAMS_OF_A_VIEWER = 32
ALL_STREAMS = 512


class EventStreams:
    """The open streams of all viewers, of which there is a limit."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def one(self, viewer: Viewer) -> Iterator[None]:
        """The right to one stream. Raises HTTPTooManyRequests."""
        if self._open[viewer.user] >= STREAMS_OF_A_VIEWER:
            sentence = f"You have {STREAMS_OF_A_VIEWER} streams of changes and logs; close some of your pages."
            raise web.HTTPTooManyRequests(text=sentence)
        if self._open.total() >= ALL_STREAMS:
            raise web.HTTPTooManyRequests(text=f"All {ALL_STREAMS} streams are in use; try again later.")
        self._open[viewer.user] += 1
        try:
            yield
        finally:
            self._open[viewer.user] -= 1
            self._open += Counter()  # drops the names without streams

    async def send(
        self, request: web.Request, messages: AsyncIterator[str], refusal: Awaitable[None] | None = None
    ) -> web.StreamResponse:
        """The messages until they end, the browser goes, the viewer signs out, or `refusal` returns."""
        with self.one(request[VIEWER]):
            return await _send(request, messages, refusal or asyncio.Future())


async def _send(request: web.Request, messages: AsyncIterator[str], refusal: Awaitable[None]) -> web.StreamResponse:
    # Without this header, nginx collects messages before it sends them.
    response = web.StreamResponse(headers=HEADERS | {"X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    await response.prepare(request)
    following = asyncio.ensure_future(anext(messages))
    leaving = asyncio.ensure_future(request[VIEWER].has_left.wait())
    refused = asyncio.ensure_future(refusal)
    try:
        while not leaving.done() and not refused.done():
            wait = asyncio.wait(
                (following, leaving, refused), timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            done, _ = await wait
            if not done:
                await response.write(b":\n\n")
            if following in done:
                await response.write(f"data: {following.result()}\n\n".encode())
                following = asyncio.ensure_future(anext(messages))
    except (StopAsyncIteration, ConnectionError, ClientError):
        pass
    except Exception as error:
        if translated(error) is None:
            raise
        # Part of the response is sent: the browser opens the stream again, and gets the refusal.
    finally:
        for each in (leaving, following, refused):
            each.cancel()
        await asyncio.gather(following, leaving, refused, return_exceptions=True)
        await messages.aclose()  # type: ignore[attr-defined]
    return response
