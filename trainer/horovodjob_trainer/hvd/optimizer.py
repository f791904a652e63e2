"""Keras optimizers that average the gradients of all ranks before they apply them."""

from typing import Any

import horovod.tensorflow as horovod
import keras
import tensorflow as tf


def DistributedOptimizer(  # the name that scripts know
    optimizer: Any,
    name: str | None = None,
    *,
    compression: Any = horovod.Compression.none,
    sparse_as_dense: bool = False,
    op: Any = horovod.Average,
) -> Any:
    """An optimizer of the same class and settings whose `apply` first reduces the gradients over all ranks.

    It is saved as the original would be, so a saved model loads where neither Horovod nor this package is
    installed. Clipping acts on the reduced gradients. Compile the model with `jit_compile=False`:
    XLA cannot compile the exchange.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(f"DistributedOptimizer needs a Keras 3 optimizer, not {type(optimizer).__name__}")
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError("DistributedOptimizer does not support LossScaleOptimizer: ranks could skip different steps")
    if is_distributed(optimizer):
        raise ValueError("this optimizer is distributed already; its gradients would be averaged twice")

    base = type(optimizer)
    prefix = name or f"Distributed{base.__name__}"

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        reduced = _reduced(list(grads), prefix, compression, sparse_as_dense, op)
        return base.apply(self, reduced, trainable_variables)

    body = {
        "__module__": base.__module__,
        "__doc__": base.__doc__,
        "__class__": property(lambda self: base),  # what Keras writes into saved files
        "_horovodjob_distributed": True,
        "apply": apply,
    }
    distributed = type(base.__name__, (base,), body)
    distributed.__qualname__ = base.__qualname__
    result = distributed.from_config(optimizer.get_config())  # type: ignore[attr-defined]
    if optimizer.built:  # restored from a checkpoint: its slots are worth keeping
        result.build(optimizer._trainable_variables)
        for new, old in zip(result.variables, optimizer.variables, strict=True):
            new.assign(old)
    return result


def is_distributed(optimizer: Any) -> bool:
    """Whether the gradients of this optimizer are reduced over all ranks."""
    return getattr(optimizer, "_horovodjob_distributed", False) is True


def _reduced(grads: list[Any], prefix: str, compression: Any, sparse_as_dense: bool, op: Any) -> list[Any]:
    if horovod.size() == 1:
        return grads
    present = [index for index, grad in enumerate(grads) if grad is not None]
    dense = []
    for index in present:
        if isinstance(grads[index], tf.IndexedSlices) and not sparse_as_dense:
            raise ValueError("a gradient is sparse (an embedding's?); pass sparse_as_dense=True")
        dense.append(tf.convert_to_tensor(grads[index]))
    # One group: Horovod fuses it into few messages, and all gradients of a step arrive together.
    averaged = horovod.grouped_allreduce(dense, compression=compression, op=op, name=prefix)
    for index, grad in zip(present, averaged, strict=True):
        grads[index] = grad
    return grads
