"""A job in the background, for tests that disturb it."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from trainer.support.waiting import TIMEOUT_SECONDS

JOB = {"HOROVODJOB_UID": "1-2-3", "HOROVODJOB_NAMESPACE": "training", "HOROVODJOB_NAME": "mnist"}


class Job:
    """Ranks in the background, which can receive signals."""

    def __init__(self, command: list[str], environment: dict[str, str], directory: Path) -> None:
        self.directory, self.earlier_files = directory, set(directory.iterdir())
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait_for(self, pattern: str) -> None:
        """Wait until the run has written a new file that matches the pattern."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not set(self.directory.glob(pattern)) - self.earlier_files:
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def send_signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(int((self.directory / f"pid-{rank}").read_text()), number)

    def ended(self) -> tuple[int, str]:
        output = self.process.communicate(timeout=TIMEOUT_SECONDS)[0]
        return self.process.returncode, output


def stopped_step(output: str) -> int:
    """The step after which SIGTERM has ended a run, with its checkpoint."""
    steps = re.findall(r"^SIGTERM: stopped after step ([0-9]+), from which the next attempt", output, re.MULTILINE)
    assert len(steps) == 1, output
    return int(steps[0])
