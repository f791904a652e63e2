"""What this rank does at the moment, in shared memory: the watch process reads it even while this rank is stopped."""

import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from horovodjob_trainer.watch.sections import FACTOR, Section, limit_seconds


class Place(IntEnum):
    """Where in its step a rank is, as the graph of the step marks it."""

    COMPUTATION = 0
    EXCHANGE = 1


class Field(IntEnum):
    """The numbers in the shared memory. Times are those of `time.monotonic`, the same in all processes of a host."""

    SECTION = 0
    SINCE = 1  # when the section began, or its last sign of progress
    LONGEST = 2  # seconds that this section has taken at most, between two signs of progress
    STEPS = 3  # the number of the last completed step
    STEPS_IN_ATTEMPT = 4
    STEP_TIME = 5  # when it was completed, in seconds since 1970
    STEP_SECONDS = 6  # its usual duration
    EXCHANGES = 7  # the number of exchanges outside of graphs in which this rank waits
    PLACE = 8
    SAMPLED = 9  # when Python code of this rank has run last
    WAITED = 10  # seconds of steps in which this rank waited in exchanges outside of a graph
    WAITED_IN_GRAPH = 11
    FIRST_STEP = 12  # the number of the step before the first one of this attempt
    HAS_POSITION = 13  # whether the numbers of steps are those of the run, and not of this process
    STALLED = 14  # seconds without progress that were a stall
    WAITED_IN_STALLS = 15  # seconds of WAITED and WAITED_IN_GRAPH that were a part of stalls
    SECONDS = 16  # and the following ones: how long this rank was in each section


COMPLETED = Field.SECONDS + len(Section)  # from here on: all these numbers, as they were after the last completed step
# Waits in a graph are recorded so often; those of a section that was at least as long, with the section.
SAMPLE_SECONDS = 1.0
# A section without a known time that ended as a stall can take this many times as long the next time:
# a validation of an hour is no stall in each epoch.
UNKNOWN_FACTOR = 2.0


class Activity:
    """The record of one process. Each number is written at once, so no reader sees a part of it."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("horovodjob-activity")
        os.ftruncate(self.descriptor, mmap.PAGESIZE)
        self._numbers = memoryview(mmap.mmap(self.descriptor, mmap.PAGESIZE)).cast("d")
        self._longest: dict[Section, float] = {}
        self._section = Section.OUTSIDE
        self._has_position, self._step_seconds = False, 0.0
        self._has_first_step, self.exchange_since = False, 0.0
        self._waited = 0.0
        self.sample: Callable[[], object] = lambda: None
        """Records the waits in graphs until now."""
        self.limit: float | None = None
        """Replaces the automatic limits of `limit_seconds`."""
        self._numbers[Field.SINCE] = time.monotonic()

    def __getitem__(self, field: Field) -> float:
        return self._numbers[field]

    def __setitem__(self, field: Field, value: float) -> None:
        self._numbers[field] = value

    def begin_attempt(self) -> None:
        """Record that no step of the attempt has been completed."""
        self[Field.STEPS_IN_ATTEMPT] = 0
        self._keep_completed()

    @property
    def current(self) -> Section:
        """The section of this rank."""
        return self._section

    def enter(self, section: Section) -> None:
        """Begin a section."""
        now = self._record_duration()
        self[Field.LONGEST] = self._usual_longest(section)
        self[Field.SINCE] = now
        self._section = section
        self._numbers[Field.SECTION] = section

    @contextmanager
    def section(self, section: Section) -> Iterator[None]:
        """Within this context, the rank is in this section; outside of a training, it stays outside."""
        before = self.current
        if before in (Section.OUTSIDE, Section.START, Section.SETUP):  # a start has the longest limit
            yield
            return
        self.enter(section)
        try:
            yield
        finally:
            self.enter(before)

    def progress(self) -> None:
        """Record a sign of progress in the section, such as a batch of a validation."""
        now = self._record_duration()
        self[Field.LONGEST] = self._usual_longest(self.current)
        self[Field.SINCE] = now

    def complete_step(self, position: int | None = None) -> None:
        """Record a completed step. Only a run in a directory knows its position, the number of its last step."""
        if self.current is Section.OUTSIDE:
            return
        if position is None and self._has_position:
            self.progress()
            return
        self._has_position = position is not None
        is_stall = self._is_stall(time.monotonic() - self[Field.SINCE])
        self.enter(Section.STEP)
        seconds, self._step_seconds = self._step_seconds, 0.0
        steps = self[Field.STEPS_IN_ATTEMPT]
        if steps and not is_stall:  # the first one compiles
            usual = self[Field.STEP_SECONDS]
            self[Field.STEP_SECONDS] = 0.9 * usual + 0.1 * seconds if usual else seconds
        number = self[Field.STEPS] + 1 if position is None else position
        if not self._has_first_step:
            self._has_first_step = True
            self[Field.FIRST_STEP], self[Field.HAS_POSITION] = number - 1, self._has_position
        self[Field.STEPS_IN_ATTEMPT] = steps + 1
        self[Field.STEPS] = number
        self[Field.STEP_TIME] = time.time()
        self._keep_completed()

    def begin_batch(self, *, is_first: bool) -> None:
        """Record that `fit` begins a batch of an epoch: the one before is completed."""
        if not is_first:
            self.complete_step()
        elif self.current is Section.EPOCH_END:
            self.enter(Section.STEP)

    def end_epoch(self) -> None:
        """Record that `fit` has completed the steps of an epoch: callbacks can validate or save the model."""
        self.complete_step()
        if self.current is Section.STEP:
            self.enter(Section.EPOCH_END)

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Within this context, the rank waits for other ranks."""
        self[Field.EXCHANGES] += 1
        if self[Field.EXCHANGES] == 1:
            self.exchange_since = time.monotonic()
        try:
            yield
        finally:
            self[Field.EXCHANGES] -= 1
            if not self[Field.EXCHANGES] and self.current is Section.STEP:
                self[Field.WAITED] += time.monotonic() - self.exchange_since

    def _keep_completed(self) -> None:
        self._numbers[COMPLETED : 2 * COMPLETED] = self._numbers[:COMPLETED]

    def _record_duration(self) -> float:
        now, section, numbers = time.monotonic(), self._section, self._numbers
        seconds = now - numbers[Field.SINCE]
        if seconds >= SAMPLE_SECONDS:
            self.sample()
        if section is Section.INPUT or section is Section.STEP:
            self._step_seconds += seconds
        longest = self._longest.get(section, 0.0)
        if seconds > longest:
            if self._is_stall(seconds):
                if not longest:
                    self._longest[section] = UNKNOWN_FACTOR * seconds / FACTOR
                numbers[Field.STALLED] += seconds
                numbers[Field.WAITED_IN_STALLS] += min(self._waited_seconds() - self._waited, seconds)
                self._waited = self._waited_seconds()
                return now
            self._longest[section] = seconds
        numbers[Field.SECONDS + section] += seconds
        self._waited = self._waited_seconds()
        return now

    def _waited_seconds(self) -> float:
        return self._numbers[Field.WAITED] + self._numbers[Field.WAITED_IN_GRAPH]

    def _usual_longest(self, section: Section) -> float:
        """How long a section has taken at most. What the start has needed, such as full buffers, it can need again."""
        longest = self._longest.get(section, 0.0)
        return max(longest, self._longest.get(Section.START, 0.0) / FACTOR) if longest else 0.0

    def _is_stall(self, seconds: float) -> bool:
        """Whether so long a section was a stall, which says nothing about the usual times."""
        longest = self._usual_longest(self.current)
        return seconds > limit_seconds(self.current, longest, self[Field.STEPS_IN_ATTEMPT], self.limit)


ACTIVITY = Activity()
