"""`hvj` as a user runs it: in this process, as a process of its own, or in a terminal."""

import atexit
import contextlib
import functools
import io
import os
import pkgutil
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from horovodjob_cli import commands
from horovodjob_cli.__main__ import main
from support.api_client import binary
from support.forked_python import client_command, lasting_fork_server

PROGRAM = Path(sys.executable).with_name("hvj")
# A limit for failures only: beside other tests, the start of a program can take a minute.
SECONDS = 600
# `hvj`, which ends as Python does, but without the destruction of all objects: it copies the pages of the fork server.
HVJ = """
import atexit, os, sys, threading
from horovodjob_cli.__main__ import main
sys.argv[0] = "hvj"
try:
    main()
except SystemExit as end:
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end.code)
"""


@dataclass(frozen=True)
class Result:
    """The output of a command line, and its exit code."""

    code: int
    stdout: str
    stderr: str

    @property
    def data(self) -> Any:
        """The parsed output; JSON is a subset of YAML."""
        assert self.code == 0, self.stderr
        return yaml.safe_load(self.stdout)


Hvj = Callable[..., Result]


def run(*arguments: str, stdin: str = "", program: str = "hvj") -> Result:
    """Run a command line in this process, without a terminal."""
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = [program, *arguments], io.StringIO(stdin)
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), pytest.raises(SystemExit) as end:
            main()
    finally:
        sys.argv, sys.stdin = before
    printed = [each.detach().getvalue().decode() for each in (stdout, stderr)]
    return Result(int(end.value.code or 0), *printed)


def kubectl_completions(*words: str) -> list[str]:
    """The answer of kubectl's own completion for the words after `kubectl hvj`, with its directive."""
    environment = os.environ | {"PATH": f"{kubectl_plugin()}:{os.environ['PATH']}"}
    command = [binary("kubectl"), "__complete", "hvj", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()


@functools.cache
def kubectl_plugin() -> Path:
    """A directory with the two programs of the plugin, which kubectl finds on its path."""
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory)
    for name, function in (("kubectl-hvj", "main"), ("kubectl_complete-hvj", "complete")):
        command = [*preloaded_python(), "-c", f"from horovodjob_cli.__main__ import {function}; {function}()"]
        (directory / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (directory / name).chmod(0o755)
    return directory


def preloaded_python() -> list[str]:
    """Python in a process that has imported `hvj` and dashboard: few tests test the start of a program."""
    modules = [f"horovodjob_cli.commands.{each.name}" for each in pkgutil.iter_modules(commands.__path__)]
    modules += [f"kubernetes.client.api.{name}_api" for name in ("apps_v1", "core_v1", "custom_objects")]
    modules += ["horovodjob_dashboard.application", "horovodjob.sweeps.study", "kubernetes.watch"]
    modules += ["azure.storage.fileshare", "jmespath", "rich.live", "rich.progress", "rich.table"]
    return client_command(lasting_fork_server(*modules))


def hvj_command(*arguments: str) -> list[str]:
    """A command line of `hvj`."""
    return [*preloaded_python(), "-c", HVJ, *arguments]


class Process(subprocess.Popen[str]):
    """A process of `hvj`, whose end is waited for as long as no test fails by that."""

    def wait(self, timeout: float | None = SECONDS) -> int:
        """The exit code."""
        return super().wait(timeout)

    def communicate(self, input: str | None = None, timeout: float | None = SECONDS) -> tuple[str, str]:  # noqa: A002
        """The further output, when the process has ended."""
        return super().communicate(input, timeout)

    def until(self, words: str) -> str:
        """The next line on standard error with these words."""
        assert self.stderr
        shown = [line := self.stderr.readline()]
        while words not in line:
            assert line, f"ended without {words!r}: {shown}"
            shown.append(line := self.stderr.readline())
        return line


@contextlib.contextmanager
def hvj_process(*arguments: str, **settings: Any) -> Iterator[Process]:
    """A process of `hvj` with pipes; it is killed at the end if it still runs."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Process(hvj_command(*arguments), **{**pipes, **settings}) as process:
        try:
            yield process
        finally:
            process.kill()


class Terminal:
    """A terminal with a program, and all its output."""

    def __init__(self, controller: int, process: subprocess.Popen[bytes]) -> None:
        self._controller, self._process = controller, process
        self.shown = ""

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._controller, keys.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def until(self, text: str) -> None:
        """Return when the program has shown this text."""
        deadline = time.monotonic() + SECONDS
        while text not in self.shown:
            assert self._read(deadline), f"ended without {text!r}: {self.shown}"

    def end(self) -> int:
        """The exit code, when the program has ended."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(SECONDS)

    def _read(self, deadline: float) -> bool:
        seconds = deadline - time.monotonic()  # a progress bar is never silent
        assert seconds > 0, f"not within {SECONDS} s: {self.shown}"
        assert select.select([self._controller], [], [], seconds)[0], f"not within {SECONDS} s: {self.shown}"
        try:
            part = os.read(self._controller, 65536).decode(errors="replace")
        except OSError:  # Linux reports the end of a terminal as this error
            return False
        self.shown += part.replace("\r\n", "\n")
        return bool(part)


@contextlib.contextmanager
def terminal(*arguments: str, columns: int = 80) -> Iterator[Terminal]:
    """`hvj` in a terminal of this width; it is killed at the end if it still runs."""
    controller, screen = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "LINES": "24", "TERM": "xterm"}
    with subprocess.Popen(
        hvj_command(*arguments),
        stdin=screen,
        stdout=screen,
        stderr=screen,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(screen)
        try:
            yield Terminal(controller, process)
        finally:
            process.kill()
            os.close(controller)
