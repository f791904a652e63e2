"""A training step as a TensorFlow graph, with momentum correction."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.learning_rate import optimizer_velocities
from horovodjob_trainer.run.moving_statistics import average_moving_statistics


def as_it_is(*batch: Any) -> Any:
    """The batch without preparation."""
    return batch


def build_step_function(
    model: Any,
    velocity_factors: Sequence[tuple[Any, Any]],
    prepare: Callable[..., Any] = as_it_is,
    averaged: Sequence[Any] = (),
) -> Any:
    """A compiled function that prepares the next batch and runs one step.

    It first multiplies the velocities of each optimizer by its factor, and averages the variables `averaged` over the
    ranks at the end.
    """
    velocities = [
        (velocity, factor) for optimizer, factor in velocity_factors for velocity in optimizer_velocities(optimizer)
    ]

    # Without AutoGraph, as in fit() of Keras: AutoGraph rewrites the source of every function that is called here.
    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def run_step(batches: Any) -> Any:
        for velocity, factor in velocities:
            velocity.assign(velocity * tf.cast(factor, velocity.dtype))
        logs = model.train_step(prepare(*next(batches)))
        average_moving_statistics(averaged)
        return logs

    return run_step
