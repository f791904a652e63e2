"""Python processes that start with modules imported: a server forks one for each client.

    python fork_server.py SOCKET MODULE ...

A client, fork_client.py, represents its forked process: it sends its environment, working directory and standard
streams, forwards signals and ends with the same exit code. When its stdin is closed, the server ends with all processes
that it forked. The import of TensorFlow takes several CPU seconds for each rank, that of `hvj` one, and few tests test
it.
"""

import atexit
import gc
import importlib
import marshal
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass

STREAMS = (0, 1, 2)
NUMBER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Request:
    """The program of a client, with its environment and directory."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: list[int]


def receive_request(connection: socket.socket) -> Request | None:
    """The request of a client that has just connected, unless it has ended already."""
    length, streams, _, _ = socket.recv_fds(connection, NUMBER_BYTES, len(STREAMS))
    body = connection.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    try:
        arguments, environment, directory = marshal.loads(body)
    except (EOFError, ValueError):  # it was killed
        for stream in streams:
            os.close(stream)
        return None
    return Request(arguments, environment, directory, streams)


def send_number(connection: socket.socket, number: int) -> None:
    """Send a number to a client, unless it was killed."""
    with suppress(OSError):
        connection.sendall(number.to_bytes(NUMBER_BYTES, "big"))


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
        send_number(connection, pid)
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
        with connection:
            send_number(connection, status)

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


@dataclass(slots=True)
class Ending:
    """The exit code of a program, which its process ends with after all other functions of `atexit`.

    The end of an interpreter frees the objects of all modules, which costs half a CPU second with TensorFlow.
    """

    code: int | None = None

    def leave(self) -> None:
        # The end of the interpreter is where mpi4py leaves MPI.
        if self.code is None or "mpi4py.MPI" in sys.modules:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed, by the program or by its reader
                stream.flush()
        os._exit(self.code)


def run(request: Request, ending: Ending) -> None:
    """Run the program of the client. Python prints the error that it ends with, if it does."""
    try:
        become(request)
        ending.code = 0
    except SystemExit as error:
        ending.code = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    except Exception:
        ending.code = 1
        raise


def main() -> None:
    ending = Ending()
    atexit.register(ending.leave)  # before all modules: the last one that is called
    path, *modules = sys.argv[1:]
    del sys.path[0]  # this folder is of no concern to them
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # else the collections of each process, and the last at its end, copy all pages: 0.8 CPU seconds
    server = ForkServer(path)
    print("ready", flush=True)
    if request := server.serve():
        run(request, ending)


if __name__ == "__main__":
    main()
