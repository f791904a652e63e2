"""Starts a server that forks Python processes in which modules are imported already."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
