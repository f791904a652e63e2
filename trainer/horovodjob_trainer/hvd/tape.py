"""Gradient tapes that average gradients over all ranks, for custom training loops."""

from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.collectives import do_not_convert
from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.gradient_reducer import GradientReducer, build_gradient_reducer, variable_key
from horovodjob_trainer.hvd.optimizer import local_variables


@do_not_convert  # type: ignore[untyped-decorator]
def DistributedGradientTape(  # the name in Horovod
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = exchange.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = exchange.global_process_set,
    scale_local_gradients: bool = True,
    bucket_bytes: int | None = None,
) -> Any:
    """The same tape, whose `gradient` reduces the gradients over all ranks. Wrap it before or after recording.

    Apply the gradients with an optimizer that is not distributed. Sources are Keras or TensorFlow variables.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"DistributedGradientTape needs a tf.GradientTape, not {type(gradtape).__name__}")
    if hasattr(gradtape, "_gradient_reducer"):
        raise ValueError("this tape is already distributed; its gradients would be averaged twice")
    gradtape._gradient_reducer = build_gradient_reducer(
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
        bucket_bytes=bucket_bytes,
    )
    gradtape.__class__ = _distributed_class(type(gradtape))
    return gradtape


@do_not_convert  # type: ignore[untyped-decorator]
def PartialDistributedGradientTape(gradtape: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """A DistributedGradientTape that does not reduce the gradients of local layers."""
    tape = DistributedGradientTape(gradtape, *args, **kwargs)
    tape._gradient_reducer.local.update(local_variables(local_layers))
    return tape


def _distributed_class(base: type) -> type:
    class Distributed(base):  # type: ignore[misc]
        _gradient_reducer: GradientReducer

        def register_local_source(self, source: Any) -> None:
            """Exclude the gradient of a variable from the reduction."""
            self._gradient_reducer.local[variable_key(source)] = source

        @do_not_convert  # type: ignore[untyped-decorator]
        def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
            gradients = super().gradient(target, sources, *args, **kwargs)
            reduced = self._gradient_reducer(_leaves(gradients), _leaves(sources))
            return tf.nest.pack_sequence_as(gradients, reduced)

        @do_not_convert  # type: ignore[untyped-decorator]
        def get_local_and_global_gradients(
            self, target: Any, sources: Any, *args: Any, **kwargs: Any
        ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
            """Pairs of source and gradient: those of local sources, and the reduced ones of all other sources."""
            gradients = self.gradient(target, sources, *args, **kwargs)
            pairs: tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]] = ([], [])
            for source, gradient in zip(_leaves(sources), _leaves(gradients), strict=True):
                is_local = variable_key(source) in self._gradient_reducer.local
                pairs[0 if is_local else 1].append((source, gradient))
            return pairs

    Distributed.__name__, Distributed.__qualname__ = base.__name__, base.__qualname__
    return Distributed


def _leaves(structure: Any) -> list[Any]:
    return list(tf.nest.flatten(structure))
