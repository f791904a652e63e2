"""What the time of the ranks was used for, and which rank is slower than the others. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from horovodjob_trainer.watch.activity import COMPLETED, Field
from horovodjob_trainer.watch.sections import Section

# A rank is slow if it needs a third more than the median for a minute. What is small in a step delays nobody.
SLOW_RATIO = 4 / 3
SLOW_SECONDS = 60.0
LEAST_SHARE = 0.05
# A slow rank stays one with half of that, and until another is clearly slower: each change is an event or a write.
STAYS_SLOW = 0.5
CLEARLY_SLOWER = 1.2


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of one rank from its start until its last completed step.

    What it has used for the next step is left out: a wait is recorded when it ends, and the step with it later.
    """

    trained: float
    """In steps and waiting for batches: without validations, checkpoints and stalls."""
    steps: float
    input: float
    """Waiting for batches."""
    compute: float
    """In steps, without waiting for batches and for other ranks."""

    @classmethod
    def of(cls, record: Any) -> "Usage":
        """What the record of a rank says."""
        numbers = record[COMPLETED:]
        in_steps = numbers[Field.SECONDS + Section.STEP]
        return cls(
            trained=in_steps + numbers[Field.SECONDS + Section.INPUT],
            steps=numbers[Field.STEPS_IN_ATTEMPT],
            input=numbers[Field.SECONDS + Section.INPUT],
            compute=in_steps - _exchange_seconds(numbers, in_steps),
        )


def _exchange_seconds(numbers: Any, in_steps: float) -> float:
    """Seconds of the waits for other ranks, without those in stalls, at most the seconds of the steps."""
    waited = numbers[Field.WAITED] + numbers[Field.WAITED_IN_GRAPH] - numbers[Field.WAITED_IN_STALLS]
    return min(max(float(waited), 0.0), in_steps)


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that the others wait for in each step."""

    rank: int
    ratio: float
    """Its own time for a step, in relation to the median of the ranks."""
    section: str
    """Where it needs the time: input or compute; empty if that is not known."""


@dataclass(slots=True)
class SlowRanks:
    """Compares what the ranks need by themselves between two exchanges."""

    seconds: float = SLOW_SECONDS
    """For how long of its training a rank must be slow."""
    before: Mapping[int, Usage] = field(default_factory=dict)
    slow: dict[int, float] = field(default_factory=dict)
    """For how many seconds of the training each slow rank has been slow."""
    slowest: SlowRank | None = None

    def add(self, ranks: Mapping[int, Usage]) -> SlowRank | None:
        """The slowest rank, if it has been slow in each comparison for a minute.

        Nothing is compared while no rank has completed a step since the last comparison: steps can be longer.
        """
        known = self.before.keys() & ranks.keys()
        if known and all(self.before[rank].steps == ranks[rank].steps for rank in known):
            return self.slowest
        named = self.slowest.rank if self.slowest else None
        found = _compared(self.before, ranks, named)
        trained = max((ranks[rank].trained - self.before[rank].trained for rank in known), default=0.0)
        self.slow = {each.rank: self.slow.get(each.rank, 0.0) + trained for each in found}
        self.before = ranks
        lasting = [each for each in found if self.slow[each.rank] >= self.seconds]
        self.slowest = max(
            lasting, key=lambda each: each.ratio * (CLEARLY_SLOWER if each.rank == named else 1), default=None
        )
        return self.slowest


def _compared(before: Mapping[int, Usage], after: Mapping[int, Usage], named: int | None) -> list[SlowRank]:
    """The ranks that were slower than the median since the last comparison; the named one with less than the others."""
    own: dict[int, tuple[float, float]] = {}
    longest = 0.0
    for rank in before.keys() & after.keys():
        old, new = before[rank], after[rank]
        if (steps := new.steps - old.steps) > 0:
            own[rank] = (max(new.input - old.input, 0.0) / steps, max(new.compute - old.compute, 0.0) / steps)
            longest = max(longest, (new.trained - old.trained) / steps)
    if len(own) < 2:
        return []
    usual = [median_low(values) for values in zip(*own.values(), strict=True)]
    median = median_low(map(sum, own.values()))
    knows_input = any(seconds for seconds, _ in own.values())
    found = []
    for rank, (seconds, compute) in own.items():
        excess, part = seconds + compute - median, STAYS_SLOW if rank == named else 1
        if median > 0 and excess >= part * max((SLOW_RATIO - 1) * median, LEAST_SHARE * longest):
            section = "input" if seconds - usual[0] > compute - usual[1] else "compute"
            found.append(SlowRank(rank, (seconds + compute) / median, section if knows_input else ""))
    return found


@dataclass(slots=True)
class WaitedSeconds:
    """The waits for other ranks that the marks in graphs have measured, by a clock that can be set while a rank waits.

    One that is longer than the time since the earliest moment at which it can have begun is left out.
    """

    total: float
    sampled_at: float
    since: float = field(init=False)
    """The last sample before which no wait can have begun that has not been added."""

    def __post_init__(self) -> None:
        self.since = self.sampled_at

    def add(self, total: float, now: float) -> float:
        """The seconds since the last sample; `now` is a time of the monotonic clock."""
        change, most = total - self.total, now - self.since
        self.total = total
        if change:
            self.since = self.sampled_at
        self.sampled_at = now
        return change if 0 < change <= most else 0.0


def seconds_by_cause(numbers: Any, ongoing: float, *, is_stalled: bool) -> dict[str, float]:
    """What the time of rank 0 was used for: `ongoing` seconds of its current section are not recorded yet."""
    section = Section(int(numbers[Field.SECTION]))
    seconds = {each: float(numbers[Field.SECONDS + each]) for each in Section}
    stalled = float(numbers[Field.STALLED])
    if is_stalled:
        stalled += ongoing
    else:
        seconds[section] += ongoing
    exchange = _exchange_seconds(numbers, seconds[Section.STEP])
    return {
        "setup": seconds[Section.START] + seconds[Section.SETUP],
        "input": seconds[Section.INPUT],
        "steps": seconds[Section.STEP] - exchange,
        "exchange": exchange,
        "validation": seconds[Section.VALIDATION] + seconds[Section.EPOCH_END],
        "checkpoints": seconds[Section.CHECKPOINT] + seconds[Section.SAVING],
        "stalled": stalled,
    }
