"""Keras callbacks that keep the ranks of a job together."""

from typing import Any

import horovod.tensorflow as horovod
import keras
import tensorflow as tf

from horovodjob_trainer.hvd.collectives import broadcast_variables
from horovodjob_trainer.hvd.gradient_reducer import key_of
from horovodjob_trainer.hvd.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the weights and the optimizer's state of `root_rank` when training begins.

    Seeds of dropout layers are no weights: they stay different on each rank, as do `local_variables`.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._local: set[int] = set()
        one = isinstance(local_variables, tf.Variable | keras.Variable)
        for variable in [local_variables] if one else local_variables or []:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable as it is on each rank."""
        if not isinstance(var, tf.Variable | keras.Variable):
            raise ValueError(f"local_variables are Keras or TensorFlow variables, not {type(var).__name__}")
        self._local.add(key_of(var))

    def on_train_begin(self, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = [*self.model.weights, *optimizer.variables]
        with tf.device(self.device):
            broadcast_variables([each for each in variables if key_of(each) not in self._local], self.root_rank)


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces each metric of an epoch by its average over the ranks. List it before callbacks that read them."""

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
    """Not offered: Horovod's saves no file by itself, and Keras 3 refuses a checkpoint without a path."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "BestModelCheckpoint is not offered: on rank 0 keras.callbacks.ModelCheckpoint(save_best_only=True) does it"
        )
