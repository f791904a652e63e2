"""Python processes that start with modules imported: a server forks one for each client.

    python fork_server.py serve SOCKET MODULE ...
    python -I -S fork_server.py run SOCKET [-m MODULE | -c CODE | SCRIPT] [ARGUMENT ...]

A client represents its forked process: it sends its environment, working directory and standard streams, forwards
signals and ends with the same exit code. When its stdin is closed, the server ends with all processes that it forked.
The import of TensorFlow takes several CPU seconds for each rank, that of `hvj` one, and few tests test it.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
STREAMS = (0, 1, 2)
NUMBER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Request:
    """The program of a client, with its environment and directory."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: list[int]


def run(path: str, arguments: list[str]) -> NoReturn:
    """Exit with the exit code, or by the signal, of the process that the server forks for this client."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    for number in FORWARDED:
        signal.signal(number, lambda received, _: connection.sendall(bytes([received])))
    body = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [len(body).to_bytes(NUMBER_BYTES, "big")], STREAMS)
    connection.sendall(body)
    status = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    if not status:
        sys.exit("the fork server has ended")
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "big"))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def receive_request(connection: socket.socket) -> Request | None:
    """The request of a client that has just connected, unless it has ended already."""
    length, streams, _, _ = socket.recv_fds(connection, NUMBER_BYTES, len(STREAMS))
    body = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    try:
        arguments, environment, directory = json.loads(body)
    except ValueError:  # it was killed
        for stream in streams:
            os.close(stream)
        return None
    return Request(arguments, environment, directory, streams)


class ForkServer:
    """Forks processes for clients."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.poll = select.poll()
        self.clients: dict[int, tuple[socket.socket, int]] = {}
        self.exits: dict[int, int] = {}  # from the descriptor of a process to that of its client

    def serve(self) -> Request | None:
        """Serves until stdin is closed. Returns the request in a forked process, None in the server."""
        stdin = sys.stdin.fileno()
        self.poll.register(stdin, select.POLLIN)
        self.poll.register(self.listener, select.POLLIN)
        while True:
            descriptor, _ = self.poll.poll()[0]  # one at a time, because the handler may close one of the others
            if descriptor == stdin:
                self._kill_all()
                return None
            if descriptor == self.listener.fileno():
                if request := self._fork():
                    return request
            elif descriptor in self.exits:
                self._report_exit(descriptor)
            else:
                self._forward_signal(descriptor)

    def _fork(self) -> Request | None:
        connection, _ = self.listener.accept()
        if (request := receive_request(connection)) is None:
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            for inherited in (self.listener, connection, *(client for client, _ in self.clients.values())):
                inherited.close()
            return request
        for stream in request.streams:
            os.close(stream)
        process = os.pidfd_open(pid)
        self.clients[connection.fileno()] = (connection, pid)
        self.exits[process] = connection.fileno()
        self.poll.register(process, select.POLLIN)
        self.poll.register(connection, select.POLLIN)
        return None

    def _report_exit(self, process: int) -> None:
        connection, pid = self.clients.pop(self.exits.pop(process))
        self.poll.unregister(process)
        os.close(process)
        with suppress(KeyError):
            self.poll.unregister(connection)
        _, status = os.waitpid(pid, 0)
        with connection, suppress(OSError):  # a client that was killed reads no more
            connection.sendall(status.to_bytes(NUMBER_BYTES, "big"))

    def _forward_signal(self, client: int) -> None:
        connection, pid = self.clients[client]
        number = connection.recv(1)
        if not number:
            self.poll.unregister(connection)
        os.kill(pid, number[0] if number else signal.SIGKILL)

    def _kill_all(self) -> None:
        for _, pid in self.clients.values():
            os.kill(pid, signal.SIGKILL)


def become(request: Request) -> None:
    """Run the program of the client in this process, as `python` does."""
    import random
    import runpy

    for stream, received in zip(STREAMS, request.streams, strict=True):
        os.dup2(received, stream)
        os.close(received)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.directory)
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # else all processes have the server's
    sys.path[:0] = filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))
    kind, *others = request.arguments
    if kind == "-m":
        sys.argv = others
        sys.path.insert(0, request.directory)
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *others[1:]]
        sys.path.insert(0, "")
        exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv = request.arguments
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")


def main() -> None:
    role, path, *arguments = sys.argv[1:]
    if role == "run":
        run(path, arguments)
    del sys.path[0]  # this folder is of no concern to them
    for module in arguments:
        importlib.import_module(module)
    gc.freeze()  # else the collections of each process, and the last at its end, copy all pages: 0.8 CPU seconds
    server = ForkServer(path)
    print("ready", flush=True)
    if request := server.serve():
        become(request)


if __name__ == "__main__":
    main()
