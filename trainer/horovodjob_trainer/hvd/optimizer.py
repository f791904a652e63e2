"""Keras optimizers that average the gradients over all ranks before they apply them."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras

from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.gradient_reducer import GradientReducer, build_gradient_reducer, variable_key

Optimizer = keras.optimizers.Optimizer
LossScaleOptimizer = keras.optimizers.LossScaleOptimizer


class DistributedName(str):
    """The name in the config of a distributed optimizer. Saved files contain only the text."""

    __slots__ = ("reducer",)
    reducer: GradientReducer

    def __new__(cls, name: str, reducer: GradientReducer) -> "DistributedName":
        self = super().__new__(cls, name)
        self.reducer = reducer
        return self

    def __deepcopy__(self, memo: Any) -> "DistributedName":
        return self

    def __reduce__(self) -> Any:
        return str, (str(self),)


@dataclass(slots=True)
class GradientReduction:
    """The gradient reduction of a distributed optimizer."""

    reducer: GradientReducer
    is_at_update: bool
    """Whether the accumulated gradients are reduced at the update, rather than the gradients of each batch."""
    is_done: bool = False
    """Whether the gradients that the optimizer applies are already reduced."""
    variables: Iterable[Any] = ()
    uses: int = 0
    """How often a step has called the optimizer; a compiled step counts once."""

    @contextlib.contextmanager
    def already_reduced(self) -> Iterator[None]:
        """Within this context, the optimizer applies its gradients without a reduction."""
        self.is_done = True
        try:
            yield
        finally:
            self.is_done = False


def DistributedOptimizer(  # the name in Horovod
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = exchange.Average,
    *,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = exchange.global_process_set,
    scale_local_gradients: bool = True,
    bucket_bytes: int | None = None,
) -> Any:
    """The same optimizer object, which from now on reduces the gradients over all ranks before it applies them.

    It keeps its class name, its settings and its slots, and is saved as it would be without Horovod. Clipping,
    weight decay and loss scaling apply to the reduced gradients. With `backward_passes_per_step`, it uses the gradient
    accumulation of Keras to sum the gradients of that number of batches, or to average them with
    `average_aggregated_gradients`, and reduces the result once. Gradients are exchanged during the backward pass, in
    buckets of `bucket_bytes` (default: HOROVOD_FUSION_THRESHOLD, or 25 MiB). The other arguments are those of Horovod.
    Raises TypeError and ValueError for invalid arguments.
    """
    inner = optimizer.inner_optimizer if isinstance(optimizer, LossScaleOptimizer) else optimizer
    _check_arguments(inner, backward_passes_per_step)
    if backward_passes_per_step > 1:
        inner.gradient_accumulation_steps = backward_passes_per_step
    reducer = build_gradient_reducer(
        name or f"Distributed{type(inner).__name__}",
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
        bucket_bytes=bucket_bytes,
        # Keras divides the accumulated gradients by the number of batches.
        factor=1.0 if average_aggregated_gradients else float(backward_passes_per_step),
    )
    distribute(inner, reducer)
    return optimizer


def distribute(optimizer: Any, reducer: GradientReducer) -> None:
    """Let an optimizer reduce its gradients with this reducer."""
    base = next(kind for kind in type(optimizer).__mro__ if "_horovodjob" not in vars(kind))
    # If an optimizer overrides one of these methods, the gradients of each batch are reduced: correct, but slower.
    is_at_update = bool(optimizer.gradient_accumulation_steps) and all(
        getattr(base, method) is getattr(Optimizer, method)
        for method in ("apply", "_backend_apply_gradients", "_clip_gradients")
    )
    # The object stays the same, with its slots and the variables that weight decay excludes, which no config contains.
    _set_class(optimizer, _distributed_class(base, GradientReduction(reducer, is_at_update)))


def _set_class(optimizer: Any, new: type) -> None:
    vars(object)["__class__"].__set__(optimizer, new)  # a distributed class overrides the attribute


def PartialDistributedOptimizer(optimizer: Any, *args: Any, local_layers: Any = None, **kwargs: Any) -> Any:
    """A DistributedOptimizer that does not reduce the gradients of local layers.

    With `scale_local_gradients`, the default, these gradients are also divided by the number of ranks.
    """
    optimizer = DistributedOptimizer(optimizer, *args, **kwargs)
    reduction = gradient_reduction(optimizer)
    assert reduction is not None
    reduction.reducer.local.update(local_variables(local_layers))
    return optimizer


def local_variables(layers: Any) -> dict[int, Any]:
    """The trainable variables of one or several layers, by their keys."""
    layers = [layers] if isinstance(layers, keras.Layer) else layers or []
    for layer in layers:
        if not isinstance(layer, keras.Layer) or not layer.built:
            raise ValueError(f"local_layers must be built Keras layers, not {layer!r}")
    return {variable_key(variable): variable for layer in layers for variable in layer.trainable_variables}


def local_slots(optimizer: Any, local: set[int]) -> set[int]:
    """The keys of the variables in which an optimizer keeps the state of local variables."""
    keys: set[int] = set()
    for inner in [optimizer, getattr(optimizer, "inner_optimizer", None), *getattr(optimizer, "optimizers", ())]:
        trained = getattr(inner, "_trainable_variables", [])
        indices = [index for index, variable in enumerate(trained) if variable_key(variable) in local]
        # Keras keeps the slots of each kind in a list in the order of the variables.
        slots = [value for name, value in vars(inner).items() if name != "_variables"] if indices else []
        for each in slots:
            if isinstance(each, list) and len(each) == len(trained):
                keys.update(variable_key(each[index]) for index in indices if isinstance(each[index], keras.Variable))
    return keys


def gradient_reduction(optimizer: Any) -> GradientReduction | None:
    """The gradient reduction of this optimizer or of the one in its loss scaling, None if it is not distributed."""
    if isinstance(optimizer, LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return getattr(optimizer, "_horovodjob", None)


def is_distributed(optimizer: Any) -> bool:
    """Whether this optimizer reduces its gradients over all ranks."""
    return gradient_reduction(optimizer) is not None


def _check_arguments(optimizer: Any, passes: int) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"DistributedOptimizer needs a Keras 3 optimizer, not {type(optimizer).__name__}")
    if any(map(is_distributed, [optimizer, *getattr(optimizer, "optimizers", ())])):
        raise ValueError("this optimizer is already distributed; its gradients would be averaged twice")
    if passes < 1:
        raise ValueError(f"backward_passes_per_step must be at least 1, not {passes}")
    if passes == 1:
        return
    if optimizer.gradient_accumulation_steps:
        raise ValueError(
            "use either backward_passes_per_step or gradient_accumulation_steps of the optimizer, not both"
        )
    if optimizer.built:
        raise ValueError("backward_passes_per_step needs an optimizer that is not built yet")
    if type(optimizer).apply is not Optimizer.apply:
        raise ValueError(f"{type(optimizer).__name__} cannot accumulate gradients: remove backward_passes_per_step")


def _distributed_class(base: type, reduction: GradientReduction) -> type:
    class Distributed(base):  # type: ignore[misc]
        _horovodjob = reduction

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return base  # the class that Keras writes to saved files

        def register_local_var(self, var: Any) -> None:
            """Exclude the gradient of a variable from the reduction."""
            reduction.reducer.local[variable_key(var)] = var

        def get_config(self) -> dict[str, Any]:
            """The config of the optimizer. An optimizer that is created from it in this process is distributed, too."""
            config = dict(super().get_config())
            return config | {"name": DistributedName(config["name"], reduction.reducer)} if "name" in config else config

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            reduction.uses += 1
            grads = list(grads)
            if not (reduction.is_at_update or reduction.is_done):
                grads = reduction.reducer(grads, gradient_variables(self, trainable_variables))
            return super().apply(grads, trainable_variables)

        def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
            reduction.variables = trainable_variables
            return super()._backend_apply_gradients(grads, trainable_variables)

        def _clip_gradients(self, grads: Any) -> Any:
            if reduction.is_at_update:  # Keras clips the accumulated gradients, only at the update
                grads = reduction.reducer(grads, list(reduction.variables))
            return super()._clip_gradients(grads)

    Distributed.__name__, Distributed.__qualname__ = base.__name__, base.__qualname__
    Distributed.__module__, Distributed.__doc__ = base.__module__, base.__doc__
    return Distributed


def gradient_variables(optimizer: Any, variables: Any) -> list[Any]:
    """The variables of the gradients: `variables`, or those with which the optimizer was built."""
    return list(optimizer._trainable_variables if variables is None else variables)
