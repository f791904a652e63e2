"""Keras callbacks that synchronize the ranks of a job."""

from typing import Any

import horovod.tensorflow as horovod
import keras
import tensorflow as tf

from horovodjob_trainer.hvd.collectives import broadcast_variables
from horovodjob_trainer.hvd.gradient_reducer import variable_key
from horovodjob_trainer.hvd.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Broadcasts the weights and the optimizer state of `root_rank` to all ranks when training begins.

    The seeds of dropout layers are not weights. They stay different on each rank, as `local_variables` do.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._local: set[int] = set()
        is_single = isinstance(local_variables, tf.Variable | keras.Variable)
        for variable in [local_variables] if is_single else local_variables or []:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Exclude a variable from the broadcast."""
        if not isinstance(var, tf.Variable | keras.Variable):
            raise ValueError(f"local_variables must be Keras or TensorFlow variables, not {type(var).__name__}")
        self._local.add(variable_key(var))

    def on_train_begin(self, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = [*self.model.weights, *optimizer.variables]
        with tf.device(self.device):
            broadcast_variables([each for each in variables if variable_key(each) not in self._local], self.root_rank)


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces each metric of an epoch by its average over the ranks. List it before callbacks that read metrics."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not logs:
            return
        names = sorted(logs)
        with tf.device(self.device):
            values = tf.constant([float(logs[name]) for name in names], tf.float64)
            averages = horovod.allreduce(values, op=horovod.Average, name="MetricAverage").numpy()
        logs.update((name, float(average)) for name, average in zip(names, averages, strict=True))


class BestModelCheckpoint:
    """Not supported: the callback of Horovod sets no path, and Keras 3 rejects a checkpoint without a path."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "BestModelCheckpoint is not supported: use keras.callbacks.ModelCheckpoint(save_best_only=True) on rank 0"
        )
