"""Starts a server that forks Python processes in which modules are imported already."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

FORK_SERVER = Path(__file__).with_name("fork_server.py")


@contextmanager
def fork_server(
    socket: Path, modules: Sequence[str], environment: Mapping[str, str], python: str = sys.executable
) -> Iterator[list[str]]:
    """The beginning of the command line of such a process, which replaces `python`."""
    with subprocess.Popen(
        [python, str(FORK_SERVER), "serve", str(socket), *modules],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield [sys.executable, "-I", "-S", str(FORK_SERVER), "run", str(socket)]
        server.stdin.close()
