"""Keras optimizers that average the gradients of all ranks before they apply them."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import horovod.tensorflow as horovod
import keras

from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.gradient_reducer import Exchange, exchange_of, key_of

Optimizer = keras.optimizers.Optimizer
LossScaleOptimizer = keras.optimizers.LossScaleOptimizer


@dataclass(slots=True)
class Distribution:
    """What makes an optimizer a distributed one."""

    exchange: Exchange
    at_update: bool
    """Whether the accumulated gradients are exchanged at the update, not the gradients of each batch."""
    is_done: bool = False
    """Whether the gradients that are being applied were exchanged before."""
    variables: Iterable[Any] = ()

    @contextlib.contextmanager
    def done(self) -> Iterator[None]:
        """Lets the optimizer take its gradients as they are."""
        self.is_done = True
        try:
            yield
        finally:
            self.is_done = False


def DistributedOptimizer(  # the name that scripts know
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = horovod.Average,
    *,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = horovod.global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """The same optimizer, which from now on reduces the gradients over all ranks before it applies them.

    It keeps its class' name, its settings and its slots, and is saved as it would be without Horovod. Clipping,
    weight decay and loss scaling act on the reduced gradients. With `backward_passes_per_step` it sums (or, with
    `average_aggregated_gradients`, averages) the gradients of so many batches and exchanges them once, by Keras'
    own gradient accumulation. The other arguments are Horovod's. Raises TypeError and ValueError for what cannot be.
    """
    inner = optimizer.inner_optimizer if isinstance(optimizer, LossScaleOptimizer) else optimizer
    _check(inner, backward_passes_per_step)
    base = type(inner)
    if backward_passes_per_step > 1:
        inner.gradient_accumulation_steps = backward_passes_per_step
    exchange = exchange_of(
        name or f"Distributed{base.__name__}",
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        # Keras divides what it has accumulated by the number of batches.
        factor=1.0 if average_aggregated_gradients else float(backward_passes_per_step),
    )
    # An optimizer with its own way to apply gradients gets them reduced batch by batch: never wrong, only slower.
    at_update = bool(inner.gradient_accumulation_steps) and all(
        getattr(base, method) is getattr(Optimizer, method)
        for method in ("apply", "_backend_apply_gradients", "_clip_gradients")
    )
    # The object stays: what is in no config (slots, variables excluded from weight decay) stays with it.
    object.__setattr__(inner, "__class__", _distributed_class(base, Distribution(exchange, at_update)))
    return optimizer


def PartialDistributedOptimizer(optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """A DistributedOptimizer that leaves the gradients of some layers to each rank.

    With `scale_local_gradients`, the default, they are divided by the number of ranks, as the others are.
    """
    optimizer = DistributedOptimizer(optimizer, *args, **kwargs)
    distribution = distribution_of(optimizer)
    assert distribution is not None
    distribution.exchange.local.update(local_variables(local_layers))
    return optimizer


def local_variables(layers: Any) -> set[int]:
    """What tells the trainable variables of a layer, or of several, from others."""
    layers = [layers] if isinstance(layers, keras.Layer) else layers or []
    for layer in layers:
        if not isinstance(layer, keras.Layer) or not layer.built:
            raise ValueError(f"local_layers are built Keras layers, not {layer!r}")
    return {key_of(variable) for layer in layers for variable in layer.trainable_variables}


def distribution_of(optimizer: Any) -> Distribution | None:
    """What makes this optimizer, or the one in its loss scaling, a distributed one; None if nothing does."""
    if isinstance(optimizer, LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return getattr(optimizer, "_horovodjob", None)


def is_distributed(optimizer: Any) -> bool:
    """Whether the gradients of this optimizer are reduced over all ranks."""
    return distribution_of(optimizer) is not None


def _check(optimizer: Any, passes: int) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"DistributedOptimizer needs a Keras 3 optimizer, not {type(optimizer).__name__}")
    if any(map(is_distributed, [optimizer, *getattr(optimizer, "optimizers", ())])):
        raise ValueError("this optimizer is distributed already; its gradients would be averaged twice")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step is a number from 1, not {passes}")
    if passes == 1:
        return
    if optimizer.gradient_accumulation_steps:
        raise ValueError("give backward_passes_per_step or the optimizer's gradient_accumulation_steps, not both")
    if optimizer.built:
        raise ValueError("backward_passes_per_step needs an optimizer that has no slots yet")
    if type(optimizer).apply is not Optimizer.apply:
        raise ValueError(f"{type(optimizer).__name__} cannot accumulate gradients: leave out backward_passes_per_step")


def _distributed_class(base: type, distribution: Distribution) -> type:
    class Distributed(base):  # type: ignore[misc]
        _horovodjob = distribution

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return base  # what Keras writes into saved files

        def register_local_var(self, var: Any) -> None:
            """Leaves the gradient of a variable to each rank."""
            distribution.exchange.local.add(key_of(var))

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            grads = list(grads)
            if not (distribution.at_update or distribution.is_done):
                grads = distribution.exchange(grads, variables_of(self, trainable_variables))
            return super().apply(grads, trainable_variables)

        def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
            distribution.variables = trainable_variables
            return super()._backend_apply_gradients(grads, trainable_variables)

        def _clip_gradients(self, grads: Any) -> Any:
            if distribution.at_update:  # Keras clips what it has accumulated, at the update and only then
                grads = distribution.exchange(grads, list(distribution.variables))
            return super()._clip_gradients(grads)

    Distributed.__name__, Distributed.__qualname__ = base.__name__, base.__qualname__
    Distributed.__module__, Distributed.__doc__ = base.__module__, base.__doc__
    return Distributed


def variables_of(optimizer: Any, given: Any) -> list[Any]:
    """The variables that gradients belong to: those given or those that the optimizer was built with."""
    return list(optimizer._trainable_variables if given is None else given)
