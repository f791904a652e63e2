"""The process of the dashboard."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable

from aiohttp import web

from horovodjob_dashboard.access_guard import AccessGuard
from horovodjob_dashboard.application import application
from horovodjob_dashboard.job_feed import JobFeed


async def serve(listener: socket.socket, namespace: str | None, cluster: str, is_ready: Callable[[str], None]) -> None:
    """Serves the jobs of a namespace, or of all, on the socket until Ctrl-C or SIGTERM; `is_ready` gets the address."""
    stop = asyncio.Event()
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is a KeyboardInterrupt there.
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    guard, feed = AccessGuard(listener.getsockname()[1]), JobFeed(namespace)
    feed.start()
    # Streams end only with their pages: do not wait for them.
    runner = web.AppRunner(application(feed, cluster, guard), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        is_ready(guard.address)
        await stop.wait()
    finally:
        await runner.cleanup()
