"""A job in the background, for tests that disturb it."""

import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from trainer.support.waiting import TIMEOUT_SECONDS

JOB = {"HOROVODJOB_UID": "1-2-3", "HOROVODJOB_NAMESPACE": "training", "HOROVODJOB_NAME": "mnist"}


class Job:
    """Ranks in the background, which can receive signals."""

    def __init__(self, command: list[str], environment: dict[str, str], directory: Path) -> None:
        self.directory, self.earlier_files = directory, set(directory.iterdir())
        # A pipe would be full at some time, and a rank that hangs would keep it open.
        self._log, self._read_lines = tempfile.TemporaryFile(), 0  # noqa: SIM115
        self.process = subprocess.Popen(command, env=environment, stdout=self._log, stderr=subprocess.STDOUT)

    def output(self) -> str:
        """What the ranks have written until now."""
        log = self._log.fileno()
        return os.pread(log, os.fstat(log).st_size, 0).decode()

    def until(self, pattern: str) -> str:
        """The next line with this pattern, after the line of the previous call."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            has_ended = self.process.poll() is not None
            lines = self.output().splitlines(keepends=True)
            for number, line in enumerate(lines[self._read_lines :], self._read_lines + 1):
                if line.endswith("\n") and re.search(pattern, line):
                    self._read_lines = number
                    return line
            if has_ended or time.monotonic() > deadline:
                raise AssertionError(f"no line has {pattern!r}:\n{''.join(lines)}")
            time.sleep(0.02)

    def wait_for(self, pattern: str) -> None:
        """Wait until the run has written a new file that matches the pattern."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not set(self.directory.glob(pattern)) - self.earlier_files:
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.02)

    def send_signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(int((self.directory / f"pid-{rank}").read_text()), number)

    def ended(self) -> tuple[int, str]:
        """The exit code, and the whole output."""
        try:
            return self.process.wait(timeout=TIMEOUT_SECONDS), self.output()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end:\n{self.output()}") from None


def stopped_step(output: str) -> int:
    """The step after which SIGTERM has ended a run, with its checkpoint."""
    steps = re.findall(r"^SIGTERM: stopped after step ([0-9]+), from which the next attempt", output, re.MULTILINE)
    assert len(steps) == 1, output
    return int(steps[0])
