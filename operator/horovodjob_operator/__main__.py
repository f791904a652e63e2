"""The operator: `python -m horovodjob_operator`."""

import asyncio
import contextlib
import logging
import os
import sys

try:
    # Kopf imports the official client where it is installed, as the command line needs it, only to recognize its
    # objects: 280 modules and 9 MB. The image of the operator does not have it.
    sys.modules["kubernetes"] = None  # type: ignore[assignment]
    import uvloop
except ModuleNotFoundError:
    sys.exit("the operator needs the extra `operator`: pip install 'horovodjob[operator]'")

from horovodjob_operator.errors import OperatorError
from horovodjob_operator.kube.lease import lease_client
from horovodjob_operator.kube.requests.api_client import ApiClient
from horovodjob_operator.kube.requests.authentication import login
from horovodjob_operator.kube.requests.retries import RetryAfter
from horovodjob_operator.kube.watches.object_watch import keep_alive_seconds
from horovodjob_operator.logs import log_json
from horovodjob_operator.process import Process
from horovodjob_operator.settings import Settings

MAX_CONCURRENT_REVIEWS = 2
log = logging.getLogger("horovodjob")


async def _operate(settings: Settings) -> None:
    info, retry_after = login(), RetryAfter()
    async with (
        contextlib.aclosing(
            ApiClient(
                info,
                limit=settings.concurrent_writes,
                retry_after=retry_after,
                keep_alive_seconds=keep_alive_seconds(settings.watch_timeout_seconds),
            )
        ) as client,
        # A replica that is not the leader must not write, but it reviews the tokens of clients that read its metrics.
        contextlib.aclosing(ApiClient(info, limit=MAX_CONCURRENT_REVIEWS, retry_after=retry_after)) as review_client,
        lease_client(info) as lease,
    ):
        await Process(settings, client, review_client, *lease).run()


def main() -> int:
    """Runs the operator. Returns 0 after a signal, 1 with one sentence in the log after a failure."""
    try:
        settings = Settings.from_environment(os.environ)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    log_json(settings.log_level)
    log.info("the operator starts as %s", settings.identity)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_operate(settings))
    except (OperatorError, OSError) as error:
        log.error("the operator ends: %s", error)
        return 1
    log.info("the operator has stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
