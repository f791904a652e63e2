"""Runs stages in parallel processes, each as soon as the stages that it needs have passed.

A run passes only if every stage of it is recorded as passed. A stage passes only if its process ends with 0, so
any other end of its process is a failure of that stage.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

POLL_SECONDS = 0.2
REPORT_SECONDS = 20
LAST_LINES = 25
# An interrupted stage may have to stop a cluster.
INTERRUPT_SECONDS = 120


class Outcome(StrEnum):
    """How a stage ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True, slots=True)
class Stage:
    """A command, and the stages that must run before it."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """Stages that must have passed before."""
    after: tuple[str, ...] = ()
    """Stages that must have ended before, however."""
    niceness: int = 0
    """Stages that others wait for have the smaller one."""
    shows_output: bool = False
    """Whether all of its output is shown at its end, and not only that of a failure."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a stage."""

    name: str
    outcome: Outcome
    seconds: float = 0
    processor_seconds: float = 0
    """Of the stage's own processes; pods and daemons are not among them."""
    reason: str = ""


class Schedule:
    """One run of stages with a limit of concurrent ones; they start in the order of the list."""

    def __init__(self, stages: Sequence[Stage], logs: Path, *, at_most: int, env: dict[str, str] | None = None) -> None:
        self.stages, self.logs, self.at_most, self.env = tuple(stages), logs, at_most, env
        self.results: dict[str, Result] = {}
        self._running: dict[str, _Process] = {}

    @property
    def passed(self) -> bool:
        """Whether every stage is recorded as passed."""
        names = {stage.name for stage in self.stages}
        recorded = {name for name, result in self.results.items() if result.outcome is Outcome.PASSED}
        return bool(names) and recorded == names

    def run(self) -> bool:
        """Run all stages that can run, even after a failure, and return whether every stage has passed."""
        self.logs.mkdir(parents=True, exist_ok=True)
        reported = time.monotonic()
        try:
            while len(self.results) < len(self.stages):
                self._start_ready()
                self._collect_ended()
                if time.monotonic() > reported + REPORT_SECONDS:
                    reported = time.monotonic()
                    self._report()
                if not self._running and not self._ready() and len(self.results) < len(self.stages):
                    self._give_up()
                time.sleep(POLL_SECONDS)
        except BaseException:
            self._interrupt()
            raise
        return self.passed

    def _start_ready(self) -> None:
        for stage in self.stages:
            if stage.name in self.results or stage.name in self._running:
                continue
            missing = [name for name in stage.needs if self._outcome(name) in (Outcome.FAILED, Outcome.NOT_RUN)]
            if missing:
                self._record(Result(stage.name, Outcome.NOT_RUN, reason=f"{missing[0]} did not pass"))
        for stage in self._ready()[: self.at_most - len(self._running)]:
            print(f"== {stage.name}: started", flush=True)
            try:
                self._running[stage.name] = _Process(stage, self.logs / f"{stage.name}.log", self.env)
            except OSError as error:
                self._record(Result(stage.name, Outcome.FAILED, reason=f"it could not be started: {error}"))

    def _ready(self) -> list[Stage]:
        return [
            stage
            for stage in self.stages
            if stage.name not in self.results
            and stage.name not in self._running
            and all(self._outcome(name) is Outcome.PASSED for name in stage.needs)
            and all(name in self.results for name in stage.after)
        ]

    def _outcome(self, name: str) -> Outcome | None:
        return self.results[name].outcome if name in self.results else None

    def _collect_ended(self) -> None:
        for name, process in list(self._running.items()):
            if (result := process.result()) is not None:
                del self._running[name]
                self._show(process, result)
                self._record(result)

    def _record(self, result: Result) -> None:
        self.results[result.name] = result
        reason = f" ({result.reason})" if result.reason else ""
        print(f"== {result.name}: {result.outcome}{reason} after {result.seconds:.0f} s", flush=True)

    def _give_up(self) -> None:
        """Record stages that wait for each other or for a missing stage."""
        for stage in self.stages:
            if stage.name not in self.results:
                self._record(Result(stage.name, Outcome.NOT_RUN, reason="what it needs is not part of this run"))

    def _show(self, process: _Process, result: Result) -> None:
        lines = process.output()
        if not process.stage.shows_output:
            lines = lines[-LAST_LINES:] if result.outcome is Outcome.FAILED else []
        print(f"\n---- {result.name}, all of its output: {process.log}", *lines, sep="\n", flush=True)

    def _report(self) -> None:
        for name, process in self._running.items():
            last = " ".join((process.output() or ["no output yet"])[-1].split())
            print(f"   {name} {time.monotonic() - process.started:.0f} s: {last[:110]}", flush=True)

    def _interrupt(self) -> None:
        """Interrupt the running stages, and wait for their end."""
        for process in self._running.values():
            process.interrupt()
        deadline = time.monotonic() + INTERRUPT_SECONDS
        while self._running and time.monotonic() < deadline:
            self._collect_ended()
            time.sleep(POLL_SECONDS)
        for process in self._running.values():
            process.kill()


class _Process:
    """The process of a stage, with its output in a log."""

    def __init__(self, stage: Stage, log: Path, env: dict[str, str] | None) -> None:
        self.stage, self.log, self.started = stage, log, time.monotonic()
        with log.open("w") as file:
            self._process = subprocess.Popen(
                ["nice", "-n", str(stage.niceness), *stage.command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                # Ctrl-C must reach each process once, and by `interrupt`.
                start_new_session=True,
            )
        # Where the kernel groups processes by session, their own niceness counts in the session only: sched(7).
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(stage.niceness))

    def result(self) -> Result | None:
        """The result, once it has ended."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if not pid:
            return None
        code = self._process.returncode = os.waitstatus_to_exitcode(status)
        outcome = Outcome.FAILED if code else Outcome.PASSED
        seconds = time.monotonic() - self.started
        reason = f"it ended with {code}" if code else ""
        return Result(self.stage.name, outcome, seconds, usage.ru_utime + usage.ru_stime, reason)

    def output(self) -> list[str]:
        """The lines printed so far."""
        return self.log.read_text(errors="replace").splitlines()

    def interrupt(self) -> None:
        """Send SIGINT to the stage and all its commands."""
        self._signal(2)

    def kill(self) -> None:
        """Send SIGKILL to the stage and all its commands."""
        self._signal(9)
        self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, number)
