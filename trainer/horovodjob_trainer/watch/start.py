"""Starts the watch of the ranks: every rank calls it together with the others, before the first step."""

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
from horovodjob_trainer.watch.activity import ACTIVITY, Field
from horovodjob_trainer.watch.marker import create_marker, marked_place, waited_seconds
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.stacks import register_stacks
from horovodjob_trainer.watch.usage import SLOW_SECONDS, WaitedSeconds

DEADLINE_VARIABLE = "HOROVODJOB_PROGRESS_DEADLINE"
LIMIT_VARIABLE = "HVD_STALL_SECONDS"
SLOW_VARIABLE = "HVD_SLOW_RANK_SECONDS"
POD_VARIABLE = "HOROVODJOB_POD"
SAMPLE_SECONDS = 1.0
PR_SET_PTRACER = 0x59616D61


class Ranks(Protocol):
    """The exchange between the ranks."""

    def rank(self) -> int: ...
    def allgather_object(self, *values: Any, **options: Any) -> Any: ...


@dataclass(slots=True)
class _Process:
    """The watch process of this rank, and the pipe whose end shows it that the rank has ended."""

    process: subprocess.Popen[bytes]
    lifeline: int


_running: list[_Process] = []
_unreported: list[subprocess.Popen[bytes]] = []
_sampler: list[threading.Thread] = []
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


@contextmanager
def watched(exchange: Ranks) -> Iterator[None]:
    """Within this context, the training is watched. Every rank enters it together; a context within does nothing."""
    if ACTIVITY.current is not Section.OUTSIDE or not is_watched():
        yield
        return
    ACTIVITY.enter(Section.START)
    ACTIVITY[Field.STEPS_IN_ATTEMPT] = 0
    try:
        _start(exchange)
        yield
    finally:
        ACTIVITY.enter(Section.OUTSIDE)
        _stop()


def _start(exchange: Ranks) -> None:
    create_marker()
    ACTIVITY.limit, slow = seconds_of(LIMIT_VARIABLE), seconds_of(SLOW_VARIABLE)
    if not _sampler:
        _sampler.append(threading.Thread(target=_sample, name="watch", daemon=True))
        _sampler[0].start()
    if not _stacks:
        _stacks.append(register_stacks())
    with peers.listen() as listener:
        rank, host, launch = exchange.rank(), hostname(), Launch.from_environment(os.environ)
        own = {"rank": rank, "host": host, "addresses": peers.own_addresses(), "port": listener.getsockname()[1]}
        # The token is the same on all ranks, and secret: it is exchanged as the gradients are.
        gathered = exchange.allgather_object((own, secrets.token_urlsafe(24)), name="HorovodWatch")
        token = gathered[0][1]
        reader, writer = os.pipe()
        settings = {
            "rank": rank,
            "host": host,
            "pid": os.getpid(),
            "activity": ACTIVITY.descriptor,
            "stacks": _stacks[0],
            "listener": listener.fileno(),
            "lifeline": reader,
            "attempt": launch.attempt,
            "deadline": seconds_of(DEADLINE_VARIABLE),
            "limit": ACTIVITY.limit,
            "slow": slow or SLOW_SECONDS,
            "directory": os.environ.get("AZ_BATCHAI_STDOUTERR_DIR", ""),
            "peers": [],
        }
        ranks = [each for each, _ in gathered]
        if rank in (0, peers.deputy_rank(ranks)):
            settings["peers"] = [each for each in ranks if each["rank"] != rank]
        _end_earlier_process()
        process = subprocess.Popen(
            [sys.executable, "-m", "horovodjob_trainer.reporting.watch_process"],
            stdin=subprocess.PIPE,
            pass_fds=(ACTIVITY.descriptor, _stacks[0], listener.fileno(), reader),
        )
        os.close(reader)
    _allow_to_read_state(process.pid)
    assert process.stdin is not None
    with process.stdin as standard_input:
        # The token is secret, and the addresses of a thousand ranks are longer than an argument can be.
        standard_input.write(json.dumps([token, settings]).encode() + b"\n")
    _running.append(_Process(process, writer))


def _stop() -> None:
    for each in _running:
        os.close(each.lifeline)
        try:
            each.process.wait(5)
        except subprocess.TimeoutExpired:
            _unreported.append(each.process)  # it still tries to report that the training has ended
    _running.clear()


def _end_earlier_process() -> None:
    """End what still reports the end of an earlier training of this process: it is no news any more."""
    for process in _unreported:
        process.kill()
        process.wait()
    _unreported.clear()


def _sample() -> None:
    """Show each second that Python code runs, where in its step this rank is, and how long it has waited."""
    waited = WaitedSeconds(waited_seconds(), time.monotonic())
    while True:
        ACTIVITY[Field.PLACE] = int(marked_place())
        seconds = waited.add(waited_seconds(), time.monotonic())
        if ACTIVITY[Field.STEPS_IN_ATTEMPT]:  # the first step is a part of the start
            ACTIVITY[Field.WAITED_IN_GRAPH] += seconds
        ACTIVITY[Field.SAMPLED] = time.monotonic()
        time.sleep(SAMPLE_SECONDS)


def _allow_to_read_state(pid: int) -> None:
    """Let the watch process read in which system calls this process waits, where the kernel asks for a permission."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
