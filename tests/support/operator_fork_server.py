"""A program that has imported the operator, which takes 2 s, and forks an operator for each line of stdin.

A line has the environment and the path of the log; the answer is the process id. The process that started this program
is the parent of the operators, as a subreaper (prctl(2)), and receives their exit codes.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
from typing import NoReturn

from horovodjob_operator.__main__ import main

PR_SET_PDEATHSIG = 1


def serve() -> None:
    """Forks until stdin ends."""
    gc.freeze()  # their garbage collectors would copy the pages of the imports
    for line in sys.stdin:
        if between := os.fork():
            os.waitpid(between, 0)
            continue
        environment, log = json.loads(line)
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            time.sleep(0.001)
        print(os.getpid(), flush=True)
        run_operator(environment, log)


def run_operator(environment: dict[str, str], log: str) -> NoReturn:
    """Becomes an operator, which ends with the tests."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os._exit(main())


if __name__ == "__main__":
    serve()
