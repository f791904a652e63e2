"""A proxy for the API server with connections that can be interrupted."""

import contextlib
import socket
import threading
from collections.abc import Iterator

CHUNK = 65536


class Proxy:
    """Forwards connections until they are closed; new ones are forwarded again."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._is_away = False
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close every connection."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Every connection is closed, also each new one, as by a server that is restarted."""
        self._is_away = True
        self.cut()
        try:
            yield
        finally:
            self._is_away = False

    def close(self) -> None:
        """Accept no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self._is_away:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._sockets += near, far
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(address: str) -> Iterator[Proxy]:
    """A proxy for `host:port`."""
    host, _, port = address.partition(":")
    hvj_process = Proxy(host, int(port))
    try:
        yield hvj_process
    finally:
        hvj_process.close()
