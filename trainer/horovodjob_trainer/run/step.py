"""A training step as a TensorFlow graph, with momentum correction, averaged moving statistics and time measurement."""

from typing import Any

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.hvd.learning_rate import optimizer_velocities


def build_step_function(model: Any, velocity_factor: Any) -> Any:
    """A compiled function that runs one step on the next batch. It first multiplies the velocities by the factor."""
    velocities = optimizer_velocities(model.optimizer)
    # Moving statistics are averaged in each step, as the gradients are, so all ranks always have the same model.
    # The weights of frozen layers never change.
    frozen = {id(v) for layer in model._flatten_layers() if not layer.trainable for v in layer.weights}
    moving_statistics = [v for v in model.non_trainable_weights if "float" in v.dtype and id(v) not in frozen]

    # Without AutoGraph, as in fit() of Keras: AutoGraph rewrites the source of every function that is called here.
    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def run_step(batches: Any) -> Any:
        for velocity in velocities:
            velocity.assign(velocity * tf.cast(velocity_factor, velocity.dtype))
        logs = model.train_step(next(batches))
        if moving_statistics and hvd.size() > 1:
            averages = hvd.grouped_allreduce([v.value for v in moving_statistics], op=hvd.Average, name="moving")
            for variable, average in zip(moving_statistics, averages, strict=True):
                variable.assign(average)
        return logs

    return run_step


def time_gradient_reduction(optimizer: Any, seconds: Any) -> None:
    """Make the optimizer add the duration of each reduction to `seconds`. It is shortest on the slowest rank."""
    apply, weight = type(optimizer).apply, optimizer._trainable_variables[-1]

    def timed_apply(grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        with tf.control_dependencies([grad for grad in grads if grad is not None]):
            start = tf.timestamp()
        with tf.control_dependencies([start]):
            result = apply(optimizer, grads, trainable_variables)
        with tf.control_dependencies([tf.identity(weight.value)]):  # read after its update
            seconds.assign_add(tf.timestamp() - start)
        return result

    object.__setattr__(optimizer, "apply", timed_apply)
