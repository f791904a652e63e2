"""Threads that transfer several files, and several blocks of each, at the same time."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
FILES = 8
BLOCKS = 8
BLOCKS_OF_A_FILE = 4
# Longest wait for requests that run when a transfer is cancelled: Ctrl-C has to end it within a second.
GRACE_SECONDS = 0.4
SIGNAL_SECONDS = 0.1


class Cancelled(Exception):
    """Another transfer failed, or the user cancelled all."""


class Transfers:
    """Threads for files and for their blocks, in the context of their caller. The first error cancels everything."""

    def __init__(self) -> None:
        self._files, self._blocks = ThreadPoolExecutor(FILES), ThreadPoolExecutor(BLOCKS)
        self._cancelled = threading.Event()

    def run(self, transfer: Callable[[*Arguments], None], files: Iterable[tuple[*Arguments]]) -> None:
        """Call `transfer` with each of the files. Raises its first error, KeyboardInterrupt."""
        transfers: list[Future[None]] = []
        ended: SimpleQueue[Future[None]] = SimpleQueue()
        try:
            for file in files:
                transfers.append(self._files.submit(partial(copy_context().run, transfer, *file)))
                transfers[-1].add_done_callback(ended.put)
            for _ in transfers:
                _next(ended).result()
        except BaseException:
            self._cancelled.set()
            self._shut_down()
            wait([each for each in transfers if not each.cancelled()], GRACE_SECONDS)
            raise
        self._shut_down()

    def start_block(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Future[Result]:
        """Start the transfer of a block. Raises Cancelled."""
        self.check()
        try:
            return self._blocks.submit(partial(copy_context().run, function, *arguments))
        except RuntimeError:  # the pool has been shut down since
            raise Cancelled from None

    def check(self) -> None:
        """Raises Cancelled if the transfers are cancelled."""
        if self._cancelled.is_set():
            raise Cancelled

    def _shut_down(self) -> None:
        for pool in (self._files, self._blocks):
            pool.shutdown(wait=False, cancel_futures=True)


def _next(ended: "SimpleQueue[Future[None]]") -> Future[None]:
    """The next transfer that has ended."""
    while True:
        with suppress(Empty):
            # A signal that arrives just before a wait does not interrupt it.
            return ended.get(timeout=SIGNAL_SECONDS)
