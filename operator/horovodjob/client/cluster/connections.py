"""Threads that read from the API server, and the end of their requests when nobody wants the answers any more."""

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakSet

THREADS = "reader of the API server"
# The API client of a thread, or of a request to a server, that has one of its own.
own_client: ContextVar[Any] = ContextVar("own_client", default=None)
_current: ContextVar["Connections | None"] = ContextVar("connections", default=None)
JOIN_SECONDS = 2
Item = TypeVar("Item")
Result = TypeVar("Result")


def without_redirects(retries: int) -> Any:
    """The `retries` of a client whose token stays with the API server: the answer of a redirect is an error."""
    from urllib3 import Retry

    return Retry(retries, redirect=False)


@functools.cache
def streams() -> Any:
    """The module of the client with `stream` and `portforward`; neither follows a redirect with the token."""
    from kubernetes import stream
    from kubernetes.stream import ws_client
    from websocket import WebSocket

    class Direct(WebSocket):
        """A redirect is an error, for which the client of Kubernetes has no option."""

        def connect(self, url: str, **options: Any) -> None:
            super().connect(url, **options, redirect_limit=0)  # type: ignore[no-untyped-call]

    ws_client.WebSocket = Direct
    return stream


class Closed(Exception):
    """The connections were closed; ends the thread that uses them."""


class Connections:
    """Threads with connections of their own to the cluster of an API client. `close` ends the connections and threads.

    A request can wait for a day, as that for the log of a silent container, and its response can be still to come.
    """

    def __init__(self, client: Any) -> None:
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._context = copy_context()
        own = type(client)(client.configuration)
        own.user_agent = client.user_agent
        self._pools = own.rest_client.pool_manager
        self._pools.pool_classes_by_scheme = {
            scheme: _pool_class(pool, self._opened) for scheme, pool in self._pools.pool_classes_by_scheme.items()
        }
        self._context.run(own_client.set, own)
        self._context.run(_current.set, self)

    def start(self, target: Callable[..., None], *arguments: Any) -> None:
        """Call the function in a thread with these connections."""

        def run() -> None:
            with contextlib.suppress(Closed):
                target(*arguments)

        thread = threading.Thread(target=self._context.copy().run, args=(run,), name=THREADS, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def check(self) -> None:
        """Raises Closed after `close`."""
        if self._closed.is_set():
            raise Closed

    def close(self) -> None:
        """End all requests; a later one raises Closed."""
        with self._lock:
            self._closed.set()
            for each in self._sockets:
                with contextlib.suppress(OSError):  # it is no longer connected
                    each.shutdown(socket.SHUT_RDWR)
        self._pools.clear()

    def join(self) -> None:
        """Return when the threads have ended, after `close`: one that runs at the end of the program can abort it."""
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0))

    def pause(self, seconds: float) -> None:
        """Wait before a further request. Raises Closed."""
        if self._closed.wait(seconds):
            raise Closed

    def _opened(self, connection: socket.socket) -> None:
        with self._lock:
            self.check()
            self._sockets.add(connection)


def side_by_side(threads: int, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results for each item, from threads in the context of their caller: they use the cluster that it chose."""
    with ThreadPoolExecutor(threads) as pool:
        return [each.result() for each in [pool.submit(copy_context().run, function, item) for item in items]]


def pause(seconds: float) -> None:
    """Wait before a further request. Raises Closed in a thread whose connections are closed meanwhile."""
    connections = _current.get()
    if connections is None:
        time.sleep(seconds)
    else:
        connections.pause(seconds)


def _pool_class(pool: Any, opened: Callable[[socket.socket], None]) -> Any:
    """The pool of urllib3, which reports each socket that it opens."""

    class Connection(pool.ConnectionCls):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            try:
                opened(self.sock)
            except Closed:
                self.close()
                raise

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})
