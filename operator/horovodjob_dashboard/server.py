"""The process of the dashboard."""

import asyncio
import socket
from collections.abc import Callable

from aiohttp import web

from horovodjob_dashboard.access_guard import AccessGuard
from horovodjob_dashboard.application import application
from horovodjob_dashboard.job_feed import JobFeed


async def serve(listener: socket.socket, namespace: str | None, cluster: str, is_ready: Callable[[str], None]) -> None:
    """Serves the jobs of a namespace, or of all, on the socket until it is cancelled; `is_ready` gets the address."""
    guard, feed = AccessGuard(listener.getsockname()[1]), JobFeed(namespace)
    feed.start()
    # Streams end only with their pages: do not wait for them.
    runner = web.AppRunner(application(feed, cluster, guard), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        is_ready(guard.address)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
