"""Gradient tapes whose gradients are averaged over all ranks, for custom training loops."""

from typing import Any

import horovod.tensorflow as horovod
import tensorflow as tf

from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.gradient_reducer import Exchange, exchange_of, key_of
from horovodjob_trainer.hvd.optimizer import local_variables


def DistributedGradientTape(  # the name that scripts know
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = horovod.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = horovod.global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The same tape, whose `gradient` gives the gradients reduced over all ranks; before or after recording.

    Apply them with an optimizer that is not distributed. Sources are Keras or TensorFlow variables.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"DistributedGradientTape needs a tf.GradientTape, not {type(gradtape).__name__}")
    if hasattr(gradtape, "_exchange"):
        raise ValueError("this tape is distributed already; its gradients would be averaged twice")
    gradtape._exchange = exchange_of(
        "DistributedGradientTape",
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    gradtape.__class__ = _distributed_class(type(gradtape))
    return gradtape


def PartialDistributedGradientTape(gradtape: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """A DistributedGradientTape that leaves the gradients of some layers to each rank."""
    tape = DistributedGradientTape(gradtape, *args, **kwargs)
    tape._exchange.local.update(local_variables(local_layers))
    return tape


def _distributed_class(base: type) -> type:
    class Distributed(base):  # type: ignore[misc]
        _exchange: Exchange

        def register_local_source(self, source: Any) -> None:
            """Leaves the gradient of a variable to each rank."""
            self._exchange.local.add(key_of(source))

        def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            gradients = super().gradient(target, sources, *args, **kwargs)
            reduced = self._exchange(_leaves(gradients), _leaves(sources))
            return tf.nest.pack_sequence_as(gradients, reduced)

    Distributed.__name__, Distributed.__qualname__ = base.__name__, base.__qualname__
    return Distributed


def _leaves(structure: Any) -> list[Any]:
    return list(tf.nest.flatten(structure))
