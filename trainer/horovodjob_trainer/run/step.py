"""One step of training as a graph, with what it needs besides Keras' own: momentum, moving statistics, a clock."""

from typing import Any

import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.hvd.learning_rate import velocities_of


def step_function(model: Any, velocity_factor: Any) -> Any:
    """One step as a compiled function of the iterator, which multiplies momentum by the factor first."""
    velocities = velocities_of(model.optimizer)
    # Moving statistics are averaged each step, as the gradients are: all ranks have the same model at any time.
    moving = [v for v in model.non_trainable_weights if "float" in v.dtype]

    # No AutoGraph, as in Keras' own fit(): it rewrites the source of every function that is called here.
    @tf.function(reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]
    def one_step(batches: Any) -> Any:
        for velocity in velocities:
            velocity.assign(velocity * tf.cast(velocity_factor, velocity.dtype))
        logs = model.train_step(next(batches))
        if moving and hvd.size() > 1:
            averages = hvd.grouped_allreduce([v.value for v in moving], op=hvd.Average, name="moving")
            for variable, average in zip(moving, averages, strict=True):
                variable.assign(average)
        return logs

    return one_step


def time_exchange(optimizer: Any, waited: Any) -> None:
    """Makes the optimizer add to `waited` how long the exchange of gradients takes; who never waits is the slowest."""
    apply, weight = type(optimizer).apply, optimizer._trainable_variables[-1]

    def timed(grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        with tf.control_dependencies([grad for grad in grads if grad is not None]):
            before = tf.timestamp()
        with tf.control_dependencies([before]):
            result = apply(optimizer, grads, trainable_variables)
        with tf.control_dependencies([tf.identity(weight.value)]):  # read after its update
            waited.assign_add(tf.timestamp() - before)
        return result

    object.__setattr__(optimizer, "apply", timed)
