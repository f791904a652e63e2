"""Copies of distributed optimizers, which are distributed like the original."""

import dataclasses
from typing import Any

import keras

from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.gradient_reducer import GradientReducer
from horovodjob_trainer.hvd.learning_rate import innermost
from horovodjob_trainer.hvd.optimizer import distribute, gradient_reduction

Optimizer = keras.optimizers.Optimizer
KerasSaveable = next(kind for kind in Optimizer.__mro__ if "_unpickle_model" in vars(kind))


def patch_copies() -> None:
    """Patch the constructor of optimizers, and the pickling of optimizers and models."""
    original_init, original_reduce = Optimizer.__init__, KerasSaveable.__reduce__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        original = getattr(type(self), "_horovodjob", None)  # set if the class is that of a distributed optimizer
        reducer = original.reducer if original else getattr(self.name, "reducer", None)
        if reducer is not None:
            self.name = str(self.name)
            distribute(self, dataclasses.replace(reducer, local=_no_local_variables(reducer)))

    def __reduce__(self: Any) -> Any:
        reduction = gradient_reduction(self if isinstance(self, Optimizer) else getattr(self, "optimizer", None))
        if reduction is None:
            return original_reduce(self)
        _, (file,) = original_reduce(self)
        return _unpickle, (file, _picklable_settings(reduction.reducer))

    Optimizer.__init__ = __init__
    KerasSaveable.__reduce__ = __reduce__


def _unpickle(file: Any, settings: dict[str, Any]) -> Any:
    saved = KerasSaveable._unpickle_model(file)
    optimizer = saved if isinstance(saved, Optimizer) else saved.optimizer
    distribute(innermost(optimizer), GradientReducer(**settings))
    return saved


def _no_local_variables(reducer: GradientReducer) -> dict[int, Any]:
    if reducer.local:
        raise ValueError(
            "a copy of a distributed optimizer cannot find the local layers of its model: create a new optimizer and "
            "call hvd.PartialDistributedOptimizer(optimizer, local_layers=...)"
        )
    return {}


def _picklable_settings(reducer: GradientReducer) -> dict[str, Any]:
    settings = {each.name: getattr(reducer, each.name) for each in dataclasses.fields(reducer)}
    settings["local"] = _no_local_variables(reducer)
    if settings.pop("process_set") is not exchange.global_process_set or isinstance(reducer.groups, list):
        raise ValueError(
            "a distributed optimizer with a process_set or with lists as groups can be neither copied nor pickled: "
            "create a new optimizer and call hvd.DistributedOptimizer with these arguments"
        )
    return settings
