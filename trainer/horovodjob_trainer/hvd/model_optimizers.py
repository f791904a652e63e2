"""The optimizers of a model, which can have others than the one of `compile`."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from horovodjob_trainer.hvd.optimizer import gradient_reduction

Optimizer = keras.optimizers.Optimizer


def model_optimizers(model: Any) -> list[Any]:
    """The optimizer of `compile`, then those in attributes of the model and of its layers, such as other models."""
    found: dict[int, Any] = {}
    for layer in (model, *model._flatten_layers(include_self=False)):
        compiled = getattr(layer, "optimizer", None)
        for value in (compiled, *vars(layer).values()):
            found |= {id(optimizer): optimizer for optimizer in _optimizers(value) if id(optimizer) not in found}
    return list(found.values())


def used_optimizers(model: Any) -> list[Any]:
    """Those optimizers that a step of the model has used; before the first step, the first one."""
    optimizers = model_optimizers(model)
    reductions = [(each, gradient_reduction(each)) for each in optimizers]
    return [each for each, reduction in reductions if reduction is not None and reduction.uses] or optimizers[:1]


def _optimizers(value: Any) -> Iterator[Any]:
    if isinstance(value, Optimizer):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _optimizers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            if isinstance(each, Optimizer):
                yield each
