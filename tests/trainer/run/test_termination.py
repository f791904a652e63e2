"""The signal handler of a process that handles SIGTERM."""

import signal
import subprocess
import sys

PROGRAM = """
from horovodjob_trainer.run.termination import Termination
Termination().listen()
print(open("/proc/self/status").read())
"""


def test_a_process_that_handles_sigterm_has_a_handler_in_proc() -> None:
    """The start scripts of a worker identify ranks that have something to save by this handler."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    (mask,) = (int(line.split()[1], 16) for line in done.stdout.splitlines() if line.startswith("SigCgt:"))
    assert mask & (1 << (signal.SIGTERM - 1))
