"""Messages between the ranks about once a second: termination, checkpoints, invalid losses; comparisons of weights."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.data.source import DamagedExamples
from horovodjob_trainer.hvd.gradient_reducer import variable_key
from horovodjob_trainer.hvd.model_optimizers import model_optimizers
from horovodjob_trainer.hvd.optimizer import gradient_reduction
from horovodjob_trainer.launch import hostname

ROUND_SECONDS = 1.0
MAX_STEPS_PER_ROUND = 1000
# Processors of different types round differently. A step on gradients that are not averaged differs by much more.
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round, the same on all ranks. Steps are those of the run."""

    terminate: bool
    checkpoint_is_due: bool
    output_failed: bool
    nonfinite_step: int | None
    nonfinite_ranks: tuple[int, ...]


class Coordination:
    """Rounds of one small allgather each, after steps that are the same on all ranks.

    `damaged` contains the damaged examples of this rank, and `damaged_names` those of all ranks.
    """

    def __init__(self, damaged: DamagedExamples | None = None) -> None:
        self.damaged, self.damaged_names, self._damaged_count = damaged, tuple[str, ...](), 0
        self.hostnames = [str(name) for name in hvd.allgather_object(hostname())]
        self.losses: list[tuple[int, Any]] = []
        self.interval = self.steps = 1
        self.restart_clock()

    def restart_clock(self) -> None:
        """Exclude the time between epochs from the time per step."""
        self.start, self.steps = time.monotonic(), 0

    def record_step(self, number: int, loss: Any) -> bool:
        """Record the loss of a step, if known, without waiting for its value. Returns whether a round is due."""
        self.steps += 1
        if loss is not None:
            self.losses.append((number, loss))
        return self.steps >= self.interval

    def round(self, *, terminate: bool, checkpoint_is_due: bool, output_failed: bool) -> RoundResult:
        """Exchange messages with all ranks. Every rank must call it after the same step."""
        step_seconds = (time.monotonic() - self.start) / max(self.steps, 1)
        nonfinite = next((step for step, loss in self.losses if not math.isfinite(float(loss))), -1)
        requests = [float(terminate), float(checkpoint_is_due), float(output_failed)]
        count = float(0 if self.damaged is None else len(self.damaged))
        message = tf.constant([[*requests, float(nonfinite), step_seconds, count]], tf.float64)
        messages = hvd.allgather(message, name="coordination").numpy()
        if self.steps:
            self.interval = _steps_per_round(float(messages[0, 4]))
        self.losses.clear()
        if (damaged := int(messages[:, 5].sum())) != self._damaged_count:
            self._damaged_count = damaged
            self.gather_damaged()
        self.restart_clock()
        steps = [int(step) for step in messages[:, 3]]
        first = min((step for step in steps if step >= 0), default=None)
        ranks = tuple(rank for rank, step in enumerate(steps) if first is not None and step == first)
        terminates, is_due, has_failed = (bool(column.any()) for column in messages[:, :3].T)
        return RoundResult(terminates, is_due, has_failed, first, ranks)

    def gather_damaged(self) -> None:
        """Exchange the names of damaged examples. Several ranks can have read the same one."""
        names = hvd.allgather_object(self.damaged.names if self.damaged is not None else ())
        known = dict.fromkeys([*self.damaged_names, *(name for part in names for name in part)])
        self.damaged_names = tuple(known)

    def rank_names(self, ranks: Sequence[int]) -> str:
        """The ranks with their pods or hosts, for messages."""
        return ", ".join(f"rank {rank} on {self.hostnames[rank]}" for rank in ranks)


def termination_is_requested(requested: bool, batch_seconds: float) -> tuple[bool, int]:
    """Whether a rank requests the end of an evaluation, and after how many batches the ranks exchange this again."""
    message = tf.constant([[float(requested), batch_seconds]], tf.float64)
    messages = hvd.allgather(message, name="evaluation").numpy()
    return bool(messages[:, 0].any()), _steps_per_round(float(messages[0, 1]))


def different_ranks(variables: Sequence[Any]) -> list[int]:
    """Ranks with other values than most ranks; without a majority, ranks with other values than rank 0."""
    digest = hashlib.sha256()
    for variable in variables:
        digest.update(np.ascontiguousarray(variable.value).data)
    digests = hvd.allgather_object(digest.hexdigest())
    counts = Counter(digests)
    majority = max(counts, key=lambda value: (counts[value], value == digests[0]))
    return [rank for rank, value in enumerate(digests) if value != majority]


def diverged_ranks(model: Any) -> list[int]:
    """The ranks whose trained weights differ from those of rank 0 by more than rounding. Every rank must call it.

    The weights of local layers are not compared.
    """
    reductions = [gradient_reduction(optimizer) for optimizer in model_optimizers(model)]
    local = {key for reduction in reductions if reduction is not None for key in reduction.reducer.local}
    weights = [weight for weight in model.trainable_weights if variable_key(weight) not in local]
    if not different_ranks(weights):
        return []
    differences = [_differs(np.array(weight.value)) for weight in weights]  # of all, as each needs all ranks
    diverged = hvd.allgather_object(any(differences))
    return [rank for rank, is_diverged in enumerate(diverged) if is_diverged]


def _differs(value: Any) -> bool:
    first = np.asarray(hvd.broadcast(value, root_rank=0, name="weight_comparison"))
    return bool(np.max(np.abs(value - first), initial=0) > TOLERANCE * np.max(np.abs(first), initial=0))


def _steps_per_round(step_seconds: float) -> int:
    return int(min(max(ROUND_SECONDS / max(step_seconds, 1e-6), 1), MAX_STEPS_PER_ROUND))
