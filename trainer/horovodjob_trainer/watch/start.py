"""Starts the watch of the ranks: every rank calls it together with the others, before the first step.

In the trainer, the watch process of a rank begins before that, and does not know the others until all ranks have
started.
"""

import ctypes
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.launch import Launch, hostname
from horovodjob_trainer.watch import peers
from horovodjob_trainer.watch.activity import ACTIVITY, SAMPLE_SECONDS, Field
from horovodjob_trainer.watch.marker import create_marker, marked_place, waited_seconds
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.stacks import register_stacks
from horovodjob_trainer.watch.usage import SLOW_SECONDS, WaitedSeconds

DEADLINE_VARIABLE = "HOROVODJOB_PROGRESS_DEADLINE"
LIMIT_VARIABLE = "HVD_STALL_SECONDS"
SLOW_VARIABLE = "HVD_SLOW_RANK_SECONDS"
POD_VARIABLE = "HOROVODJOB_POD"
PR_SET_PTRACER = 0x59616D61


class Ranks(Protocol):
    """The exchange between the ranks."""

    def rank(self) -> int: ...
    def allgather_object(self, *values: Any, **options: Any) -> Any: ...


@dataclass(slots=True)
class _Process:
    """The watch process of this rank."""

    process: subprocess.Popen[bytes]
    lifeline: int
    """The pipe whose end shows it that the rank has ended."""
    port: int
    """Where it answers questions."""


_running: list[_Process] = []
_unreported: list[subprocess.Popen[bytes]] = []
_sampler: list["_Sampler"] = []
_stacks: list[int] = []


def is_watched() -> bool:
    """Whether this training is watched: in the pods of a job, and where a deadline is set."""
    return bool(os.environ.get(POD_VARIABLE) or os.environ.get(DEADLINE_VARIABLE) or os.environ.get(LIMIT_VARIABLE))


def seconds_of(variable: str) -> float | None:
    """The value of an environment variable; None if it is not set."""
    if not (text := os.environ.get(variable)):
        return None
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < inf:
            return seconds
    raise UsageError(f"the environment variable {variable} is {text!r}; it must be a number of seconds above 0")


def watch_start(rank: int) -> None:
    """Watch a rank of the trainer from now on, before it knows the others: a start can hang too."""
    if is_watched():
        ACTIVITY.enter(Section.START)
        _start_process(rank)


def watch_setup(exchange: Ranks) -> None:
    """Let the ranks that have started know each other. Every rank calls it together."""
    if _running:
        _connect(exchange, _running[0])
        ACTIVITY.enter(Section.SETUP)


@contextmanager
def watched(exchange: Ranks) -> Iterator[None]:
    """Within this context, the training is watched. Every rank enters it together; a context within does nothing."""
    if ACTIVITY.current not in (Section.OUTSIDE, Section.SETUP) or not is_watched():
        yield
        return
    ACTIVITY.enter(Section.START)
    ACTIVITY.begin_attempt()
    try:
        create_marker()
        if not _running:
            _connect(exchange, _start_process(exchange.rank()))
        yield
    finally:
        ACTIVITY.enter(Section.OUTSIDE)
        _stop()


def _start_process(rank: int) -> _Process:
    """Start the watch process of this rank. Until it is connected, it knows no other."""
    ACTIVITY.limit, slow = seconds_of(LIMIT_VARIABLE), seconds_of(SLOW_VARIABLE)
    if not _sampler:
        _sampler.append(_Sampler())
        ACTIVITY.sample = _sampler[0].add_waits
        _sampler[0].start()
    if not _stacks:
        _stacks.append(register_stacks())
    with peers.listen() as listener:
        reader, writer = os.pipe()
        settings = {
            "rank": rank,
            "host": hostname(),
            "pid": os.getpid(),
            "activity": ACTIVITY.descriptor,
            "stacks": _stacks[0],
            "listener": listener.fileno(),
            "lifeline": reader,
            "attempt": Launch.from_environment(os.environ).attempt,
            "deadline": seconds_of(DEADLINE_VARIABLE),
            "limit": ACTIVITY.limit,
            "slow": slow or SLOW_SECONDS,
            "directory": os.environ.get("AZ_BATCHAI_STDOUTERR_DIR", ""),
        }
        _end_earlier_process()
        process = subprocess.Popen(
            [sys.executable, "-m", "horovodjob_trainer.reporting.watch_process"],
            stdin=subprocess.PIPE,
            pass_fds=(ACTIVITY.descriptor, _stacks[0], listener.fileno(), reader),
            start_new_session=True,  # mpirun kills the process groups of the ranks, and this one has a last report
        )
        os.close(reader)
        port = listener.getsockname()[1]
    _allow_to_read_state(process.pid)
    _running.append(_Process(process, writer, port))
    _send(process, settings)
    return _running[-1]


def _connect(exchange: Ranks, watch: _Process) -> None:
    """Let the watch process of rank 0, and that of its deputy, know where those of the other ranks answer."""
    own = {"rank": exchange.rank(), "host": hostname(), "addresses": peers.own_addresses(), "port": watch.port}
    # The token is the same on all ranks, and secret: it is exchanged as the gradients are.
    gathered = exchange.allgather_object((own, secrets.token_urlsafe(24)), name="HorovodWatch")
    ranks, token = [each for each, _ in gathered], gathered[0][1]
    asks = own["rank"] in (0, peers.deputy_rank(ranks))
    _send(watch.process, [token, [each for each in ranks if asks and each["rank"] != own["rank"]]])
    assert watch.process.stdin is not None
    watch.process.stdin.close()


def _send(process: subprocess.Popen[bytes], message: Any) -> None:
    """Write a line: a token is secret, and the addresses of a thousand ranks are longer than an argument can be."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # a watch process that has ended ends no training
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()


def _stop() -> None:
    for each in _running:
        os.close(each.lifeline)
        try:
            each.process.wait(5)
        except subprocess.TimeoutExpired:
            _unreported.append(each.process)  # it still tries to report that the training has ended
    _running.clear()


def _end_earlier_process() -> None:
    """End the watch processes that still try to report the end of an earlier training: the next one has begun."""
    for process in _unreported:
        process.kill()
        process.wait()
    _unreported.clear()


class _Sampler(threading.Thread):
    """Shows each second that Python code runs, where in its step this rank is, and how long it has waited."""

    def __init__(self) -> None:
        super().__init__(name="watch", daemon=True)
        self.waited, self.lock = WaitedSeconds(waited_seconds(), time.monotonic()), threading.Lock()

    def run(self) -> None:
        """Sample until the process ends."""
        while True:
            ACTIVITY[Field.PLACE] = int(marked_place())
            self.add_waits()
            ACTIVITY[Field.SAMPLED] = time.monotonic()
            time.sleep(SAMPLE_SECONDS)

    def add_waits(self) -> None:
        """Record the waits in graphs until now."""
        with self.lock:
            seconds = self.waited.add(waited_seconds(), time.monotonic())
            if ACTIVITY[Field.STEPS_IN_ATTEMPT]:  # the first step is a part of the start
                ACTIVITY[Field.WAITED_IN_GRAPH] += seconds


def _allow_to_read_state(pid: int) -> None:
    """Let the watch process read in which system calls this process waits, where the kernel asks for a permission."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
