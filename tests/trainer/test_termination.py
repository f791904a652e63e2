"""What a launcher can see of a process that listens for SIGTERM."""

import signal
import subprocess
import sys

PROGRAM = """
from horovodjob_trainer.run.termination import Termination
Termination().listen()
print(open("/proc/self/status").read())
"""


def test_a_process_that_listens_has_a_handler_for_sigterm() -> None:
    """By it the start scripts of a worker tell ranks that have something to save from those that have not."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    (mask,) = (int(line.split()[1], 16) for line in done.stdout.splitlines() if line.startswith("SigCgt:"))
    assert mask & (1 << (signal.SIGTERM - 1))
