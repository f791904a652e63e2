"""Ranks without a network that train in small steps: `many_ranks.py DIRECTORY RANKS`.

Each rank is a process with its watch process; eight of them have the name of one pod. They exchange outside of graphs,
over a barrier. The ranks of a pod with a file DIRECTORY/hang-POD hang before the same step, and a rank that finds
DIRECTORY/stop-RANK stops.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PER_POD = 8
directory, ranks = Path(sys.argv[1]), int(sys.argv[2])
processes_of_fork = multiprocessing.get_context("fork")
barrier = processes_of_fork.Barrier(ranks)
hang_step = processes_of_fork.Value("i", 0)  # set by rank 0, since the others look for the file at different times


class Ranks:
    """The exchange between the ranks."""

    def __init__(self, rank: int) -> None:
        self.number = rank

    def rank(self) -> int:
        return self.number

    def allgather_object(self, own: Any, **_: Any) -> list[Any]:
        (directory / f"own-{self.number}").write_text(json.dumps(own))
        barrier.wait()
        return [json.loads((directory / f"own-{rank}").read_text()) for rank in range(ranks)]


def hang(request: Path, step: int) -> None:
    if step == hang_step.value and request.exists():
        time.sleep(3600)  # at one place, so that their stacks are equal; the attempt ends before


def train(rank: int) -> None:
    from horovodjob_trainer.watch import start  # each rank has its own record
    from horovodjob_trainer.watch.activity import ACTIVITY

    pod = f"pod-{rank // PER_POD}"
    os.environ["HOROVODJOB_POD"] = pod
    (directory / f"process-{rank}").write_text(str(os.getpid()))
    vars(start)["create_marker"] = lambda: None  # there is no graph
    steps = 0
    with start.watched(Ranks(rank)):
        while True:
            hang(directory / f"hang-{pod}", steps)
            if rank == 0 and not hang_step.value and any(directory.glob("hang-*")):
                hang_step.value = steps + 1  # the others read it after the exchange of this step
            if (stop := directory / f"stop-{rank}").exists():
                stop.unlink()
                os.kill(os.getpid(), signal.SIGSTOP)
            with ACTIVITY.exchange():
                barrier.wait()
            ACTIVITY.complete_step()
            steps += 1
            if steps == 5 and rank == 0:
                print("TRAINS", flush=True)
            time.sleep(0.1)


def end_with_parent() -> None:
    """A test that fails kills mpirun alone."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


end_with_parent()
processes = []
for rank in range(ranks):
    if not (process := os.fork()):
        end_with_parent()
        train(rank)
    processes.append(process)
ended, status = os.wait()
for process in processes:
    if process != ended:
        os.kill(process, signal.SIGKILL)
sys.exit(128 + os.WTERMSIG(status))
