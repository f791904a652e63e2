"""When requests are sent again: delays that grow, and pauses that the API server requires (Retry-After)."""

import asyncio
import logging
import math
import random
import time

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

# API servers under load require one second or a few. A longer pause would look like a failure of the operator.
LONGEST_PAUSE_SECONDS = 30
TRIES = 5
log = logging.getLogger("horovodjob.api_client")


def retry_delay_seconds(retries: int, *, first: float, longest: float = 30.0, jitter: float = 0.0) -> float:
    """Seconds until the next retry: twice as long after each retry, reduced at random by at most the share `jitter`."""
    return min(longest, first * 2.0 ** min(retries, 10)) * random.uniform(1 - jitter, 1)


class RetryAfter:
    """Client middleware: after a response with Retry-After, all requests that share this object wait.

    An overloaded API server refuses requests with 429 and without effect: these are sent again. Requests with other
    errors can have had an effect, so the caller decides about them.
    """

    def __init__(self) -> None:
        self._until = -math.inf

    @property
    def seconds_left(self) -> float:
        """Remaining seconds of the pause; 0 or less if there is none."""
        return self._until - time.monotonic()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Sends the request after the pause."""
        for tries_left in reversed(range(TRIES)):
            while (seconds := self.seconds_left) > 0:
                await asyncio.sleep(seconds)
            response = await handler(request)
            if response.status < 400 or not (text := response.headers.get("Retry-After", "")).isdecimal():
                break
            self._begin(int(text), response.status)
            if response.status != 429 or not tries_left:
                break
            await response.read()
        return response

    def _begin(self, seconds: int, status: int) -> None:
        seconds = min(max(seconds, 1), LONGEST_PAUSE_SECONDS)
        if self.seconds_left <= 0:
            log.warning("the API server returned %d with Retry-After: all requests pause for %d s", status, seconds)
        self._until = max(self._until, time.monotonic() + seconds)
