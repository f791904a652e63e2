"""Runs a script unchanged, of which rank 1 stops itself after some steps: stopped.py SCRIPT [ARGUMENT ...]."""

import os
import runpy
import signal
import sys
import threading
import time

from horovodjob_trainer.watch.activity import ACTIVITY, Field


def stop() -> None:
    while ACTIVITY[Field.STEPS_IN_ATTEMPT] < 5:
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGSTOP)


if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    threading.Thread(target=stop, daemon=True).start()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
