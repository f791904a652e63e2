"""Posts the events of jobs in the background. They are best effort: Kubernetes promises an event to nobody."""

import asyncio
import itertools
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from horovodjob.api.job import HorovodJob
from horovodjob_operator.controller.clock import now
from horovodjob_operator.domain.events import Event
from horovodjob_operator.errors import AlreadyExists, Gone, Unavailable
from horovodjob_operator.kube.requests.writer import Writer
from horovodjob_operator.logs import log_warning

# The API server deletes events after an hour, and a late one misleads.
EVENT_SECONDS = 600
RETRY_SECONDS = 10
SENDERS = 4
CLOSE_SECONDS = 2
Post = tuple[HorovodJob, Event, datetime]
log = logging.getLogger("horovodjob.events")


class EventPoster:
    """A queue of events. Each has a name of its own, so a repeated request creates no second one."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._posts: asyncio.Queue[Post] = asyncio.Queue()
        self._numbers = itertools.count()

    def post(self, job: HorovodJob, events: Iterable[Event], at: datetime) -> None:
        """Queues events of a status that is written."""
        for event in events:
            # Their order is that of their times.
            self._posts.put_nowait((job, event, at + timedelta(microseconds=next(self._numbers) % 1000)))

    async def run(self) -> None:
        """Sends queued events until cancelled."""
        async with asyncio.TaskGroup() as senders:
            for _ in range(SENDERS):
                senders.create_task(self._send_all())

    async def close(self) -> None:
        """Gives the queued events a last moment."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._posts.join()
        except TimeoutError:
            log.warning("%d events are not posted", self._posts.qsize())

    async def _send_all(self) -> None:
        while True:
            post = await self._posts.get()
            try:
                await self._send(*post)
            finally:
                self._posts.task_done()

    async def _send(self, job: HorovodJob, event: Event, at: datetime) -> None:
        try:
            await self._writer.post_event(job, event, at)
        except (AlreadyExists, Gone):
            pass  # The response to the first request was lost, or the namespace is being deleted.
        except Exception as error:  # Nothing depends on an event, and the other events must be posted.
            log_warning(job, f"event {event.reason} was not posted: {error or type(error).__name__}")
            if isinstance(error, Unavailable) and now() < at + timedelta(seconds=EVENT_SECONDS - RETRY_SECONDS):
                post = (job, event, at)
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._posts.put_nowait, post)
