"""Starts a server that forks Python processes in which modules are imported already."""

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

FORK_SERVER, FORK_CLIENT = (Path(__file__).with_name(f"fork_{name}.py") for name in ("server", "client"))


@contextmanager
def fork_server(modules: Sequence[str], environment: Mapping[str, str], python: str = sys.executable) -> Iterator[str]:
    """The socket of a server, which ends with the context."""
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(
            [python, str(FORK_SERVER), socket := f"{directory}/socket", *modules],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield socket


@functools.cache
def lasting_fork_server(*modules: str) -> str:
    """The socket of a server, which ends with this process."""
    started = ExitStack()
    atexit.register(started.close)
    return started.enter_context(fork_server(modules, os.environ))


def client_command(socket: str) -> list[str]:
    """The beginning of the command line of a process that the server forks; it replaces `python`."""
    return [sys.executable, "-I", "-S", str(FORK_CLIENT), socket]


def forked_pid(client: int) -> int:
    """The process that the server has forked for a client. No other client has the same standard output."""
    (forked,) = (pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _writes_for(pid, client))
    return forked


def _writes_for(pid: int, client: int) -> bool:
    with suppress(OSError):  # it has ended
        return pid != client and os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/{client}/fd/1")
    return False
