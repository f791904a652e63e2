"""A training step as a TensorFlow graph, with momentum correction, and the moving statistics that it changes."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.hvd.learning_rate import optimizer_velocities


def as_it_is(*batch: Any) -> Any:
    """The batch without preparation."""
    return batch


def build_step_function(
    model: Any,
    velocity_factors: Sequence[tuple[Any, Any]],
    prepare: Callable[..., Any] = as_it_is,
    averaged: Sequence[Any] = (),
) -> Any:
    """A compiled function that prepares a batch and runs one step.

    It first multiplies the velocities of each optimizer by its factor, and averages the variables `averaged` over the
    ranks at the end.
    """
    velocities = [
        (velocity, factor) for optimizer, factor in velocity_factors for velocity in optimizer_velocities(optimizer)
    ]

    # Without AutoGraph, as in fit() of Keras: AutoGraph rewrites the source of every function that is called here.
    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def run_step(batch: Any) -> Any:
        for velocity, factor in velocities:
            velocity.assign(velocity * tf.cast(factor, velocity.dtype))
        logs = model.train_step(prepare(*batch))
        average_moving_statistics(averaged)
        return logs

    return run_step


def moving_statistics(model: Any) -> list[Any]:
    """The variables that the forward pass changes: neither trained, nor of frozen layers, nor whole numbers."""
    frozen = {id(variable) for layer in model._flatten_layers() if not layer.trainable for variable in layer.weights}
    return [each for each in model.non_trainable_weights if "float" in each.dtype and id(each) not in frozen]


def average_moving_statistics(variables: Sequence[Any]) -> None:
    """Assign the averages over the ranks. Every rank must call it after the same step.

    The statistics are linear in those of the batches. So apart from rounding, the result is that of an average in each
    step, and an average between two others does not change the later one.
    """
    if variables and hvd.size() > 1:
        averages = hvd.grouped_allreduce([each.value for each in variables], op=hvd.Average, name="moving_statistics")
        for variable, average in zip(variables, averages, strict=True):
            variable.assign(average)
