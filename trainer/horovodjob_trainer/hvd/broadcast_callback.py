"""The callback that gives all ranks the same variables when training begins."""

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.hvd.collectives import broadcast_variables
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.first_batch import FirstBatchCallback
from horovodjob_trainer.hvd.gradient_reducer import variable_key
from horovodjob_trainer.hvd.optimizer import gradient_reduction, local_slots
from horovodjob_trainer.hvd.process_sets import UNSCOPED


class BroadcastGlobalVariablesCallback(FirstBatchCallback):
    """Broadcasts the weights and the optimizer state of `root_rank` to all ranks when training begins.

    If the first batch builds layers of the model, it broadcasts after this batch. The states of seed generators are not
    weights and stay different on each rank, as do `local_variables` and the local layers of the optimizer. With
    `average_statistics`, the statistics of BatchNormalization and Normalization layers are averaged over the ranks when
    training begins and at the end of each epoch.
    """

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Any = None, *, average_statistics: bool = False
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.average_statistics = average_statistics
        self._local: dict[int, Any] = {}
        is_single = isinstance(local_variables, tf.Variable | keras.Variable)
        for variable in [local_variables] if is_single else local_variables or []:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Exclude a variable from the broadcast."""
        if not isinstance(var, tf.Variable | keras.Variable):
            raise ValueError(f"local_variables must be Keras or TensorFlow variables, not {type(var).__name__}")
        self._local[variable_key(var)] = var

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        has_variables = self.model.built and bool(self.model.weights)
        is_built = all(part.built for part in [*self.model._flatten_layers(), *self._other_optimizers()])
        with tf.device(self.device):
            states = tf.constant([has_variables, has_variables and is_built], tf.int32)
            # A rank that has loaded a model can be ahead of the others.
            states = exchange.allreduce(states, op=exchange.Min, name="HorovodBroadcast_is_built", **UNSCOPED).numpy()
        if states[0]:
            self._broadcast()
        self.waits_for_first_batch = not states[1]

    def after_first_batch(self) -> None:
        self._broadcast()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.average_statistics:
            _average_statistics(self.model)

    def _other_optimizers(self) -> list[Any]:
        """The optimizers of a model with several, except the one of `compile`."""
        values = [value for value in vars(self.model).values() if isinstance(value, keras.optimizers.Optimizer)]
        return [value for value in dict.fromkeys(values) if value is not self.model.optimizer]

    def _broadcast(self) -> None:
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        optimizers = [each for each in [optimizer, *self._other_optimizers()] if each is not None and each.built]
        local = set(self._local)
        for each in optimizers:
            local |= set(reduction.reducer.local if (reduction := gradient_reduction(each)) else ())
        for each in optimizers:
            local |= local_slots(each, local)
        variables = [*self.model.weights, *(variable for each in optimizers for variable in each.variables)]
        with tf.device(self.device):
            if self.average_statistics:
                _average_statistics(self.model)
            broadcast_variables([each for each in variables if variable_key(each) not in local], self.root_rank)
            _finalize_normalization(self.model)


def _average_statistics(model: Any) -> None:
    """Assign to the normalization layers of all ranks the mean and the variance of the data of all ranks."""
    pairs = list(_statistics(model))
    if not pairs:
        return
    means = [tf.cast(mean.value, tf.float64) for mean, _ in pairs]
    squares = [tf.cast(variance.value, tf.float64) + mean**2 for mean, (_, variance) in zip(means, pairs, strict=True)]
    averages = exchange.grouped_allreduce([*means, *squares], op=exchange.Average, name="HorovodStatistics", **UNSCOPED)
    count = len(pairs)
    for (mean, variance), average, square in zip(pairs, averages[:count], averages[count:], strict=True):
        mean.assign(tf.cast(average, mean.dtype))
        variance.assign(tf.cast(tf.maximum(square - average**2, 0.0), variance.dtype))
    _finalize_normalization(model)


def _finalize_normalization(model: Any) -> None:
    """Let the Normalization layers use the current values of their variables."""
    for layer in _adapted_layers(model):
        layer.finalize_state()


def _adapted_layers(model: Any) -> list[Any]:
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Normalization)]
    return [layer for layer in layers if layer.built and layer.input_mean is None]


def _statistics(model: Any) -> Iterator[tuple[Any, Any]]:
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization) and layer.built:
            yield layer.moving_mean, layer.moving_variance
    for layer in _adapted_layers(model):
        yield layer.adapt_mean, layer.adapt_variance
