"""Starts a server that forks Python processes in which modules are imported already."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

FORK_SERVER, FORK_CLIENT = (Path(__file__).with_name(f"fork_{name}.py") for name in ("server", "client"))


@contextmanager
def fork_server(
    socket: Path, modules: Sequence[str], environment: Mapping[str, str], python: str = sys.executable
) -> Iterator[list[str]]:
    """The beginning of the command line of such a process, which replaces `python`."""
    with subprocess.Popen(
        [python, str(FORK_SERVER), str(socket), *modules],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield [sys.executable, "-I", "-S", str(FORK_CLIENT), str(socket)]
        server.stdin.close()


def forked_pid(client: int) -> int:
    """The process that the server has forked for a client whose standard output is a pipe of its own."""
    (forked,) = (pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _writes_for(pid, client))
    return forked


def _writes_for(pid: int, client: int) -> bool:
    with suppress(OSError):  # it has ended
        return pid != client and os.readlink(f"/proc/{pid}/fd/1") == os.readlink(f"/proc/{client}/fd/1")
    return False
