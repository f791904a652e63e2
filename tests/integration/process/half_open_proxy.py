"""A proxy between the operator and the API server. Its connections can become half-open."""

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class HalfOpenProxy:
    """Forwards TCP connections."""

    def __init__(self, kubeconfig: Path) -> None:
        self._configuration = yaml.safe_load(kubeconfig.read_text())
        target = urlsplit(self._configuration["clusters"][0]["cluster"]["server"])
        self._target = (target.hostname, target.port)
        self._silent = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def kubeconfig(self, path: Path) -> Path:
        """The kubeconfig with the address of the proxy."""
        port = self._server.getsockname()[1]
        self._configuration["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        path.write_text(yaml.safe_dump(self._configuration))
        return path

    def go_silent(self) -> None:
        """Makes the present connections half-open: no data and no FIN arrives. New connections are forwarded."""
        self._silent.set()
        self._silent = threading.Event()

    def close(self) -> None:
        """Accepts no more connections."""
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(*ends, self._silent), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, silent: threading.Event) -> None:
        try:
            while data := source.recv(65536):
                if not silent.is_set():
                    target.sendall(data)
            if not silent.is_set():
                target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other end is closed
