"""The watch process of a rank: it runs while the rank cannot, and ends with it. Imports neither TensorFlow nor Horovod.

That of rank 0 sees when the training makes no progress. Then it asks those of the other ranks what they do, reports it
to the operator and to the log, and ends the attempt at the deadline, if the user has set one. If it does not answer,
its deputy does all this a little later: the watch of the first rank on another host.
"""

import json
import math
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from horovodjob_trainer.reporting.progress_client import ProgressClient
from horovodjob_trainer.watch import stacks
from horovodjob_trainer.watch.activity import Field, Place
from horovodjob_trainer.watch.judgement import (
    SILENT_SECONDS,
    RankState,
    Verdict,
    deadline_seconds,
    verdict,
    verdict_before_start,
    verdict_text,
)
from horovodjob_trainer.watch.peers import Peer, ask, is_alive, question
from horovodjob_trainer.watch.sections import UNKNOWN_SECONDS, Section, limit_seconds
from horovodjob_trainer.watch.usage import SLOW_SECONDS, SlowRanks, Usage, seconds_by_cause

CHECK_SECONDS = 1.0
PAUSE_SECONDS = 5.0
WAKE_SECONDS = 3.0
REPORT_SECONDS = 30.0
COMPARISONS = 3  # within the time in which a rank must be slow
FILE_SECONDS = 5.0
# After so long without a report, the operator shows that none comes any more. Healthy ranks report every 20 s.
SILENCE_SECONDS, LEAST_SILENCE_SECONDS = 300.0, 60.0
MOST_SILENCE_SECONDS = 86400.0  # that the operator accepts
DEPUTY_SECONDS = 60.0  # so much later than rank 0 its deputy looks
RETRY_SECONDS = 5.0
CONNECT_SECONDS = 5.0  # between ranks that exchange where they answer
MAX_BLAMED, MAX_TEXT = 8, 1000  # those of a report
ENDED = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the rank gives to its watch process, as JSON in the first line of its standard input.

    The second line has the token of the ranks, and where the other ones answer.
    """

    rank: int
    host: str
    pid: int
    activity: int
    stacks: int
    listener: int
    lifeline: int
    attempt: int
    deadline: float | None = None
    directory: str = ""
    """Where the stacks are written to, in addition to the log."""
    limit: float | None = None
    """Replaces the automatic limits."""
    slow: float = SLOW_SECONDS
    """How long a rank must be slower than the others before it is named."""


class Watch:
    """What one watch process knows of its rank, and rank 0's of all."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.token = settings, ""
        self.numbers = memoryview(mmap.mmap(settings.activity, mmap.PAGESIZE)).cast("d")
        self.peers: list[Peer] = []
        self.is_deputy = False
        self.is_connected = threading.Event()
        """Whether all ranks have started, and rank 0 knows the others."""
        self.client = ProgressClient.from_environment(os.environ, say) if settings.rank == 0 else None
        self.asks_at = 0.0
        self.stalled_since = self.stalled_at = self.reported_at = 0.0
        self.observed_since = -math.inf
        """Since when this process has run without a pause: what happened in a pause of the pod says nothing."""
        self.slow_ranks = SlowRanks(settings.slow)
        self.stall: dict[str, Any] | None = None
        self.said = ""
        """The last verdict that the log has, without places: on a busy node the first one can be wrong."""
        self.compares_at = time.monotonic() + self.interval_seconds
        self.comparison: threading.Thread | None = None
        self.has_ended = False
        self.kernel_calls, self.is_held, self.looks_at = stacks.KernelCalls(settings.pid), False, 0.0
        self.stacks_lock = threading.Lock()
        self.post_lock = threading.Lock()

    def connect(self, token: str, peers: list[dict[str, Any]]) -> None:
        """All ranks have started. Rank 0 and its deputy know the others."""
        self.peers = [Peer(**{**each, "addresses": tuple(each["addresses"])}) for each in peers]
        self.is_deputy = self.settings.rank != 0 and bool(self.peers)
        if self.is_deputy:
            self.client = ProgressClient.from_environment(os.environ, say)
        self.token = token
        self.is_connected.set()

    def run(self) -> None:
        """Answer questions and, for rank 0 and its deputy, check the progress, until the rank has ended."""
        listener = socket.socket(fileno=self.settings.listener)
        # Beside the answers: both can ask each other at once.
        threading.Thread(target=self._check_regularly, daemon=True).start()
        while True:
            ready, _, _ = select.select([listener.fileno(), self.settings.lifeline], [], [], CHECK_SECONDS)
            # A process that the rank has forked holds its end of the pipe too.
            if self.settings.lifeline in ready or os.getppid() != self.settings.pid:
                self._end()
                return
            if listener.fileno() in ready:
                with suppress(OSError):
                    connection, _ = listener.accept()
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _check_regularly(self) -> None:
        while not self.is_connected.is_set() or self.is_deputy or self.settings.rank == 0:
            before = time.monotonic()
            time.sleep(CHECK_SECONDS)
            if (now := time.monotonic()) - before > CHECK_SECONDS + PAUSE_SECONDS:
                self.observed_since = now
            self.check()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if not self.is_connected.wait(CONNECT_SECONDS):
                return  # it has no token, with which another rank could ask
            asked = question(connection, self.token)
            if asked == "state":
                connection.sendall(json.dumps(asdict(self.state())).encode() + b"\n")
            elif asked == "usage":
                connection.sendall(json.dumps(asdict(self.usage())).encode() + b"\n")
            elif asked == "held":
                connection.sendall(json.dumps({"seconds": self.kernel_calls.seconds()}).encode() + b"\n")
            elif asked == "stacks":
                connection.sendall(json.dumps({"stacks": self.stacks()}).encode() + b"\n")

    def usage(self) -> Usage:
        """What the rank has used its time for."""
        return Usage.of(self.numbers)

    def stacks(self) -> str:
        """The Python stacks of the rank, or how the kernel sees it."""
        with self.stacks_lock, suppress(OSError):
            if text := stacks.dump(self.settings.pid, self.settings.stacks):
                return text
        pid = self.settings.pid
        return f"the process {stacks.process_state(pid) or stacks.kernel_wait(pid) or 'cannot run'}"

    def state(self) -> RankState:
        """What the rank does."""
        numbers = self.numbers
        stopped, waits = stacks.process_state(self.settings.pid), stacks.kernel_wait(self.settings.pid)
        silent = self._silent_seconds() if not stopped else 0.0
        section, place = Section(int(numbers[Field.SECTION])), Place(int(numbers[Field.PLACE]))
        # The place is a sample, of a rank whose Python code runs: that for which this process has just waited.
        is_in_step = section in (Section.START, Section.STEP, Section.EPOCH_END) and silent <= SILENT_SECONDS
        is_waiting = numbers[Field.EXCHANGES] > 0 or (is_in_step and place is Place.EXCHANGE)
        return RankState(
            rank=self.settings.rank,
            host=self.settings.host,
            section=section,
            is_waiting=is_waiting and not stopped,
            silent_seconds=silent,
            kernel=stopped or waits,
            steps=int(numbers[Field.STEPS]),
            frame="" if stopped else stacks.program_frame(stacks.main_thread(self.stacks())),
        )

    def _silent_seconds(self) -> float:
        """Seconds since Python code of the rank ran. Returns when it runs again, or surely does not."""
        asked = time.monotonic()
        while (sampled := self.numbers[Field.SAMPLED]) < asked:
            now = time.monotonic()
            # After a pause of the pod, the record is old, and the code runs again.
            if now - sampled > SILENT_SECONDS and now - asked > WAKE_SECONDS:
                break
            time.sleep(0.1)
        return time.monotonic() - sampled

    def check(self) -> None:
        """Report a training that makes no progress, and the end of that."""
        numbers, settings = self.numbers, self.settings
        section, steps = Section(int(numbers[Field.SECTION])), numbers[Field.STEPS_IN_ATTEMPT]
        since, is_known = numbers[Field.SINCE], section is not Section.OUTSIDE
        seconds = time.monotonic() - max(since, self.observed_since)
        is_before_start = not self.is_connected.is_set() and numbers[Field.EXCHANGES]
        if is_before_start and settings.rank:
            return  # it waits for others, which rank 0 says of all that do
        if self.is_deputy or is_before_start:
            seconds -= min(DEPUTY_SECONDS, settings.limit or DEPUTY_SECONDS)
        limit = limit_seconds(section, numbers[Field.LONGEST], steps, settings.limit)
        if is_start := section in (Section.START, Section.SETUP) and not self.is_deputy:
            limit = 0.0 if self._is_held() else limit
        deadline = None
        if settings.deadline is not None:
            deadline = deadline_seconds(settings.deadline, section, steps)
        if not is_known or seconds < min(limit, deadline or limit):
            if not is_known or since != self.stalled_at or is_start:
                self._end_stall()
            if not self.is_deputy and time.monotonic() >= self.compares_at:
                self._compare_soon()
            return
        if self.is_deputy and self._rank_0_answers():
            return
        is_over = deadline is not None and seconds >= deadline
        if not self.stalled_since or is_over or time.monotonic() - self.reported_at >= REPORT_SECONDS:
            self._report(since, deadline if is_over else None)

    def _is_held(self) -> bool:
        """Whether a rank has been in one call of the kernel, such as a read from a share, for as long as the limit.

        It is the only sign of a stall in a start, which can need hours.
        """
        limit, now = self.settings.limit or UNKNOWN_SECONDS, time.monotonic()
        if now >= self.looks_at:
            self.looks_at = now + min(REPORT_SECONDS, limit / 3)
            answers = ask(self.peers, "held", self.token).values()
            longest = max([self.kernel_calls.seconds(), *(each["seconds"] for each in answers)])
            self.is_held = longest >= limit
        return self.is_held

    @property
    def interval_seconds(self) -> float:
        """The time between two comparisons, and between two reports of a training that continues."""
        return min(self.settings.slow, SLOW_SECONDS) / COMPARISONS

    def _compare_soon(self) -> None:
        """Start a comparison, whose end is reported. One that still runs does not delay the report."""
        self.compares_at = time.monotonic() + self.interval_seconds
        if self.comparison is not None and self.comparison.is_alive():
            self._post_all()
            return
        self.comparison = threading.Thread(target=self.compare, daemon=True)
        self.comparison.start()

    def _rank_0_answers(self) -> bool:
        """Whether the watch of rank 0 runs: then it reports, and ends the attempt."""
        if time.monotonic() < self.asks_at:
            return not self.stalled_since
        self.asks_at = time.monotonic() + RETRY_SECONDS
        first = next(each for each in self.peers if each.rank == 0)
        if answers := is_alive(first, self.token):
            self.stalled_since, self.stall = 0.0, None
        return answers

    def compare(self) -> None:
        """Compare what the ranks need by themselves, and report it with what the time was used for."""
        if not self.numbers[Field.STEPS_IN_ATTEMPT]:
            return
        answers = ask(self.peers, "usage", self.token)
        ranks = {self.settings.rank: self.usage()} | {rank: Usage(**answer) for rank, answer in answers.items()}
        before, found = self.slow_ranks.slowest, self.slow_ranks.add(ranks)
        if found and (before is None or before.rank != found.rank):
            section = f", most of it in its {found.section}" if found.section else ""
            say(
                f"SlowRank: rank {found.rank} on {self._host(found.rank)} needs {found.ratio:.2f} times as long for a "
                f"step as the median of the ranks, without the exchange{section}"
            )
        self._post_all()

    def _host(self, rank: int) -> str:
        return next((each.host for each in self.peers if each.rank == rank), self.settings.host)

    def _end(self) -> None:
        """Report the last numbers, and that no report follows: the training has ended.

        The program can continue for long, so this is tried until the operator knows it or the rank ends.
        """
        if self.client is None or self.is_deputy or not self.numbers[Field.STEPS_IN_ATTEMPT]:
            return
        self.client.close()
        self.stall, self.has_ended = None, True
        report = {**self._everything(), "nextWithin": 0}
        while not self.client.deliver(report) and os.getppid() == self.settings.pid:
            time.sleep(RETRY_SECONDS)

    def _post_all(self) -> None:
        """Post everything that is known: a report replaces one that is still in the queue."""
        if self.client is None:
            return
        with self.post_lock:
            self.client.post(self._everything())

    def _everything(self) -> dict[str, Any]:
        known: dict[str, Any] = {"attempt": self.settings.attempt, "stall": self.stall}
        if self.is_deputy:
            return known | {"isDeputy": True}
        limit = self.settings.limit
        if not self.numbers[Field.STEPS_IN_ATTEMPT] and self.stall is None:
            return known | {"usage": self._usage_report()}  # the first step can be far, and no report precedes it
        silence = max(limit, LEAST_SILENCE_SECONDS) if limit else SILENCE_SECONDS
        return known | {"usage": self._usage_report(), "nextWithin": min(silence, MOST_SILENCE_SECONDS)}

    def _usage_report(self) -> dict[str, Any]:
        numbers = self.numbers
        ongoing = time.monotonic() - numbers[Field.SINCE]
        if self.has_ended and numbers[Field.SECTION] == Section.STEP and not self.stalled_since:
            ongoing = 0.0  # this step has no end: the rank was killed, such as because another one was
        causes = seconds_by_cause(numbers, ongoing, is_stalled=bool(self.stalled_since))
        report: dict[str, Any] = {
            "seconds": {cause: round(seconds, 2) for cause, seconds in causes.items()},
            "steps": int(numbers[Field.STEPS]),
        }
        if numbers[Field.HAS_POSITION]:
            report["firstStep"] = int(numbers[Field.FIRST_STEP])
        if found := self.slow_ranks.slowest:
            slow = {"rank": found.rank, "pod": self._host(found.rank), "ratio": round(found.ratio, 2)}
            report["slowestRank"] = slow | ({"section": found.section} if found.section else {})
        return report

    def _report(self, since: float, deadline: float | None) -> None:
        states = self._states()
        if self.numbers[Field.SINCE] != since:
            return  # the training has continued meanwhile
        found = self._judge(states)
        is_first, self.stalled_since, self.stalled_at = not self.stalled_since, self.stalled_since or since, since
        self.reported_at = time.monotonic()
        text = f"no step since {self._last_step():%H:%M:%SZ}{self._usual()}: {verdict_text(found)}"
        if deadline is None:
            self._post_stall(found, is_over=False)
            # A rank that computes is at another place each time.
            before, self.said = self.said, verdict_text(self._judge([replace(each, frame="") for each in states]))
            if is_first or self.said != before:
                say(f"TrainingStalled: {text}")
            return
        self._write_stacks(states)
        self._post_stall(found, is_over=True)
        if self.client is not None:
            self.client.close()
        say(f"{ENDED}: {text}; the attempt ends after {deadline:g} s without {self._missing_step()}")
        sys.stderr.flush()
        os.kill(self.settings.pid, signal.SIGKILL)  # mpirun then ends the other ranks
        os._exit(0)

    def _judge(self, states: list[RankState]) -> Verdict:
        return verdict(states) if self.is_connected.is_set() else verdict_before_start(states[0])

    def _end_stall(self) -> None:
        if self.stalled_since:
            self.stalled_since = 0.0
            say("the training continues")
            self.stall = None
            self._post_all()

    def _states(self) -> list[RankState]:
        answers = ask(self.peers, "state", self.token)
        states = [self.state()]
        for peer in self.peers:
            answer = answers.get(peer.rank)
            states.append(
                RankState(**{**answer, "section": Section(answer["section"]), "rank": peer.rank, "host": peer.host})
                if answer
                else RankState(peer.rank, peer.host, is_answering=False)
            )
        return states

    def _post_stall(self, found: Verdict, *, is_over: bool) -> None:
        if self.client is None:
            return
        blamed = [{"rank": each.rank, "host": each.host, "text": each.text()[:300]} for each in found.blamed]
        more = f"{len(blamed) - MAX_BLAMED} more ranks are not in the exchange" if len(blamed) > MAX_BLAMED else ""
        self.stall = {
            "since": f"{self._last_step():%Y-%m-%dT%H:%M:%SZ}",
            "usualSeconds": round(self.numbers[Field.STEP_SECONDS], 4) or None,
            "blamed": blamed[:MAX_BLAMED],
            "others": "; ".join(filter(None, (more, found.others)))[:MAX_TEXT],
            "isOver": is_over,
        }
        if (steps := self._known_steps()) is not None:
            self.stall["steps"] = steps
        self._post_all()

    def _known_steps(self) -> int | None:
        """The number of the last step; 0 if there is none, None if the program does not know what it does again."""
        steps = int(self.numbers[Field.STEPS])
        return steps if self.numbers[Field.HAS_POSITION] or not steps else None

    def _missing_step(self) -> str:
        """The step that was not completed by the deadline; the operator reads its number from this text."""
        steps = self._known_steps()
        return "a step" if steps is None else f"a step after step {steps}" if steps else "a first step"

    def _last_step(self) -> datetime:
        """When the last step was completed; without one, when the section began."""
        at = self.numbers[Field.STEP_TIME] or time.time() - (time.monotonic() - self.numbers[Field.SINCE])
        return datetime.fromtimestamp(at, UTC)

    def _usual(self) -> str:
        seconds = self.numbers[Field.STEP_SECONDS]
        return f" (usual: {seconds:.2g} s)" if seconds else ""

    def _write_stacks(self, states: list[RankState]) -> None:
        """Write the stacks to the log and, if it can be written to, to the directory of the logs."""
        found = {self.settings.rank: self.stacks()}
        answers = ask(self.peers, "stacks", self.token)
        found |= {rank: str(answer.get("stacks", "")) for rank, answer in answers.items()}
        found |= {each.rank: each.text() for each in states if not each.is_answering}
        text = f"Stacks of the ranks at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n{stacks.grouped(found)}\n"
        print(text, file=sys.stderr, flush=True)
        if self.settings.directory:
            path = Path(self.settings.directory) / f"stacks-attempt-{self.settings.attempt}.txt"
            # The directory can be on the share that hangs.
            if within(FILE_SECONDS, lambda: path.write_text(text)):
                say(f"the stacks are in {path} too")


def within(seconds: float, call: Callable[[], Any]) -> bool:
    """Whether a call that can hang has succeeded in this time."""
    done = threading.Event()

    def work() -> None:
        with suppress(OSError):
            call()
            done.set()

    threading.Thread(target=work, daemon=True).start()
    return done.wait(seconds)


def say(text: str) -> None:
    """Write a line to the log of the job."""
    print(f"horovodjob: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Watch the rank that has started this process."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # the watch ends with its rank, which can write a checkpoint first
    watch = Watch(Settings(**json.loads(sys.stdin.readline())))
    threading.Thread(target=_connect, args=(watch,), daemon=True).start()
    watch.run()
    os._exit(0)


def _connect(watch: Watch) -> None:
    """Read the second line, which comes when all ranks have started."""
    if line := sys.stdin.readline():
        watch.connect(*json.loads(line))


if __name__ == "__main__":
    main()
