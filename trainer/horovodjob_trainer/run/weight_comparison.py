"""The comparison of the weights of the ranks after the first update."""

from typing import Any

import numpy as np

from horovodjob_trainer import hvd
from horovodjob_trainer.hvd.gradient_reducer import variable_key
from horovodjob_trainer.hvd.model_optimizers import model_optimizers
from horovodjob_trainer.hvd.optimizer import gradient_reduction
from horovodjob_trainer.run.coordination import Coordination

# Processors of different types round differently. A step on gradients that are not averaged differs by much more.
TOLERANCE = 1e-6


def synchronized_weights(model: Any) -> list[Any]:
    """The trained weights that are equal on all ranks: without those of local layers."""
    reductions = [gradient_reduction(optimizer) for optimizer in model_optimizers(model)]
    local = {key for reduction in reductions if reduction is not None for key in reduction.reducer.local}
    return [weight for weight in model.trainable_weights if variable_key(weight) not in local]


def diverged_ranks(coordination: Coordination, weights: list[Any]) -> list[int]:
    """The ranks whose weights differ from those of rank 0 by more than rounding. Every rank must call it."""
    if not coordination.different_ranks(weights):
        return []
    differences = [_differs(np.array(weight.value)) for weight in weights]  # of all, as each needs all ranks
    diverged = hvd.allgather_object(any(differences))
    return [rank for rank, is_diverged in enumerate(diverged) if is_diverged]


def _differs(value: Any) -> bool:
    first = np.asarray(hvd.broadcast(value, root_rank=0, name="weight_comparison"))
    return bool(np.max(np.abs(value - first), initial=0) > TOLERANCE * np.max(np.abs(first), initial=0))
