"""Losses that are the mean over the examples of all ranks, also with masks and weights."""

from typing import Any

import keras
import tensorflow as tf
from keras.src.losses.loss import apply_mask, squeeze_or_expand_to_same_rank
from tensorflow.python.eager import record

from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.gradient_reducer import unique_name
from horovodjob_trainer.hvd.process_sets import UNSCOPED

WEIGHTED = "mean_with_sample_weight"
MEANS = (WEIGHTED, "mean", "sum_over_batch_size")


def DistributedLoss(loss: Any) -> Any:  # a name as those of Horovod
    """The same loss object, whose mean in training is that of the examples of all ranks.

    The average of the means of the ranks is another value if the ranks have different numbers of examples that count,
    because of a mask, `ignore_class` or weights. While gradients are recorded, all ranks must call the loss in the same
    steps. It is then the loss of one process with all examples, and the average of its gradients over the ranks is that
    of one process. Otherwise it is the loss of this rank. Raises TypeError and ValueError for other losses.
    """
    if not isinstance(loss, keras.losses.Loss):
        raise TypeError(f"DistributedLoss needs an object such as keras.losses.MeanSquaredError(), not {loss!r}")
    if loss.reduction not in MEANS:
        raise ValueError(f"DistributedLoss needs a loss that is a mean, and its reduction is {loss.reduction!r}")
    vars(object)["__class__"].__set__(loss, _distributed_class(type(loss)))
    return loss


def _distributed_class(base: type) -> type:
    class Distributed(base):  # type: ignore[misc]
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return base  # the class that Keras writes to saved files

        def call(self, y_true: Any, y_pred: Any) -> Any:
            self._losses = super().call(y_true, y_pred)
            return self._losses

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            mean = super().__call__(y_true, y_pred, sample_weight)
            losses = self.__dict__.pop("_losses")
            if not (exchange.is_initialized() and exchange.size() > 1 and record.could_possibly_record()):
                return mean
            count = _divisor(losses, _mask(y_pred, losses), sample_weight, self.reduction)
            own = tf.stop_gradient(tf.stack([tf.cast(mean, tf.float32) * count, count]))
            name = unique_name(f"DistributedLoss_{base.__name__}")
            total, total_count = tf.unstack(exchange.allreduce(own, op=exchange.Sum, name=name, **UNSCOPED))
            share = tf.math.divide_no_nan(own[1] * float(exchange.size()), total_count)
            part, value = mean * tf.cast(share, mean.dtype), tf.math.divide_no_nan(total, total_count)
            # The gradient is that of the part of this rank, and the value that of all ranks: a metric that weights the
            # values of ranks by their examples would weight a part twice.
            return part + tf.stop_gradient(tf.cast(value, part.dtype) - part)

    Distributed.__name__, Distributed.__qualname__ = base.__name__, base.__qualname__
    Distributed.__module__, Distributed.__doc__ = base.__module__, base.__doc__
    return Distributed


def _mask(*tensors: Any) -> Any:
    """The examples that count in all of these tensors, None if all do."""
    masks = [mask for each in tensors if (mask := getattr(each, "_keras_mask", None)) is not None]
    return tf.reduce_all(tf.stack([tf.cast(mask, tf.bool) for mask in masks]), axis=0) if masks else None


def _divisor(losses: Any, mask: Any, sample_weight: Any, reduction: str) -> Any:
    """The number by which Keras divides the sum of the weighted losses."""
    if reduction == WEIGHTED and not (mask is None and sample_weight is None):
        weights = None if sample_weight is None else tf.cast(sample_weight, tf.float32)
        weights = apply_mask(weights, mask, dtype="float32", reduction=reduction)
        return tf.reduce_sum(squeeze_or_expand_to_same_rank(losses, weights)[1])
    size = tf.cast(tf.size(losses), tf.float32)
    return size if mask is None else size * tf.reduce_mean(tf.cast(mask, tf.float32))
