"""A process that has imported the operator, and forks an operator for each line of stdin.

A line has the environment and the path of the log; the answer is the process id.
"""

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Mapping

from horovodjob_operator.__main__ import main

PR_SET_PDEATHSIG = 1


def serve() -> None:
    """Forks until stdin ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the processes
    gc.freeze()  # their garbage collectors would copy the pages of the imports
    for line in sys.stdin:
        environment, log = json.loads(line)
        if pid := os.fork():
            print(pid, flush=True)
        else:
            _run_operator(environment, log)


def _run_operator(environment: Mapping[str, str], log: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os._exit(int(main() or 0))


if __name__ == "__main__":
    serve()
