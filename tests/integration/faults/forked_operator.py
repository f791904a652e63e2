"""Operators that a fork server starts: a test that restarts them often would spend its time on their imports."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from support.operator_process import Operator

SERVER = Path(__file__).with_name("operator_fork_server.py")
# The operator takes any free port: between two processes no port can be reserved.
ANY_PORT = {"HOROVODJOB_OPERATOR_HTTP_PORT": "0", "HOROVODJOB_OPERATOR_PROGRESS_PORT": "0"}


class ForkedProcess:
    """A process that the fork server has started, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """0 where it has ended, else None. Only its parent receives its exit code."""
        return 0 if select.select([self._ended], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        """Returns when it has ended."""
        select.select([self._ended], [], [], timeout)
        return 0

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._ended, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._ended)


class ForkServer:
    """Starts operators by forking; they end with the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "--", sys.executable, "-P", str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def fork(self, environment: Mapping[str, str], log: Path) -> ForkedProcess:
        """An operator with this environment and log."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._lock:
            self._server.stdin.write(json.dumps([dict(environment), str(log)]) + "\n")
            self._server.stdin.flush()
            return ForkedProcess(int(self._server.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.kill()
        self._server.wait()


class ForkedOperator(Operator):
    """The operator as a process of the fork server."""

    def __init__(self, server: ForkServer, kubeconfig: Path, log: Path, **settings: str) -> None:
        super().__init__(kubeconfig, log, None, **settings)
        self._server = server

    def start(self) -> "ForkedOperator":
        """Starts the process, and does not wait until it is ready."""
        self._spawn()
        return self

    def restart(self) -> None:
        """Kills the process and starts the next one at once."""
        self.kill()
        self.start()

    def _popen(self, environment: Mapping[str, str]) -> ForkedProcess:
        return self._server.fork({**environment, **ANY_PORT}, self._log)
