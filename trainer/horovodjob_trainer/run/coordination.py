"""What the ranks tell each other about once a second: who has to stop, whose loss is no number, who is slow."""

import hashlib
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.launch import hostname

SECONDS = 1.0
MOST_STEPS = 1000
# Named as slow: this many times the other ranks' own time of a step, and this much more, so often in a row.
SLOW_FACTOR, SLOW_SECONDS, SLOW_ROUNDS, SAY_AGAIN_SECONDS = 1.5, 0.05, 3, 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all ranks know after a round, the same on each; steps are those of the run."""

    terminate: bool
    nonfinite_step: int | None
    nonfinite_ranks: tuple[int, ...]


class Coordination:
    """Rounds of one small allgather each, at steps that are the same on all ranks."""

    def __init__(self, waited: Any, say: Callable[[str], None]) -> None:
        self.waited, self.say = waited, say
        self.names = [str(name) for name in hvd.allgather_object(hostname())]
        self.losses: list[tuple[int, Any]] = []
        self.interval = self.steps = 1
        self.slow = Counter[int]()
        self.last_said = -math.inf
        self.restart_clock()

    def restart_clock(self) -> None:
        """Leaves out of the step's time what lies between epochs."""
        self.since, self.steps = time.monotonic(), 0
        self.waited.assign(0.0)

    def step(self, number: int, loss: Any) -> bool:
        """Remembers the loss of a step, without waiting for it, and gives whether a round is due."""
        self.steps += 1
        self.losses.append((number, loss))
        return self.steps >= self.interval

    def round(self, *, terminate: bool) -> Verdict:
        """Asks all ranks; every rank has to call it after the same step."""
        took = (time.monotonic() - self.since) / max(self.steps, 1)
        own = took - float(self.waited.numpy()) / max(self.steps, 1)
        bad = next((step for step, loss in self.losses if not math.isfinite(float(loss))), -1)
        told = tf.constant([[float(terminate), float(bad), took, own]], tf.float64)
        answers = hvd.allgather(told, name="coordination").numpy()
        if self.steps:
            self.interval = int(min(max(SECONDS / max(answers[0, 2], 1e-6), 1), MOST_STEPS))
            self._name_slow(answers[:, 3])
        self.losses.clear()
        self.restart_clock()
        steps = [int(step) for step in answers[:, 1]]
        first = min((step for step in steps if step >= 0), default=None)
        ranks = tuple(rank for rank, step in enumerate(steps) if first is not None and step == first)
        return Verdict(bool(answers[:, 0].any()), first, ranks)

    def differing(self, variables: Sequence[Any]) -> list[int]:
        """Ranks whose values are not those of most ranks; where there is no majority, not those of rank 0."""
        digest = hashlib.sha256()
        for variable in variables:
            digest.update(np.ascontiguousarray(variable.value).data)
        digests = hvd.allgather_object(digest.hexdigest())
        counts = Counter(digests)
        usual = max(counts, key=lambda value: (counts[value], value == digests[0]))
        return [rank for rank, value in enumerate(digests) if value != usual]

    def named(self, ranks: Sequence[int]) -> str:
        """The ranks with the places where they run."""
        return ", ".join(f"rank {rank} on {self.names[rank]}" for rank in ranks)

    def _name_slow(self, own: Any) -> None:
        for rank, seconds in enumerate(own):
            others = [float(other) for index, other in enumerate(own) if index != rank]
            usual = statistics.median(others) if others else math.inf
            slow = seconds > SLOW_FACTOR * usual and seconds - usual > SLOW_SECONDS
            self.slow[rank] = self.slow[rank] + 1 if slow else 0
            if self.slow[rank] >= SLOW_ROUNDS and time.monotonic() - self.last_said > SAY_AGAIN_SECONDS:
                self.last_said = time.monotonic()
                self.say(
                    f"All ranks wait for {self.named([rank])}: {seconds:.3f} s a step, {usual:.3f} s on the others"
                )


def averaged(values: Mapping[str, float], weight: float) -> dict[str, float]:
    """The values' weighted average over all ranks; a rank without any takes part with the weight 0."""
    names = max(hvd.allgather_object(list(values)), key=len)
    own = [values.get(name, 0.0) * weight for name in names]
    totals = hvd.allreduce(np.array([*own, weight], np.float64), op=hvd.Sum, name="metrics").numpy()
    return {name: float(total / totals[-1]) for name, total in zip(names, totals[:-1], strict=True)}
