"""Arguments and calls of Keras 2 that unchanged scripts use and that have no effect."""

import functools
from typing import Any

import keras

BaseOptimizer = next(kind for kind in keras.optimizers.Optimizer.__mro__ if "variables" in vars(kind))
Trainer = next(kind for kind in keras.Model.__mro__ if "compile" in vars(kind))


class CallableList(list[Any]):
    """The variables of an optimizer, a list that Keras 2 also allows to call."""

    def __call__(self) -> "CallableList":
        return self


def accept_keras2_arguments() -> None:
    """Accept `optimizer.variables()` and `compile(experimental_run_tf_function=...)`."""
    if getattr(BaseOptimizer, "_accepts_keras2_arguments", False):
        return
    BaseOptimizer._accepts_keras2_arguments = True
    variables, original_compile = BaseOptimizer.variables.fget, Trainer.compile

    @functools.wraps(original_compile)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        kwargs.pop("experimental_run_tf_function", None)
        return original_compile(self, *args, **kwargs)

    BaseOptimizer.variables = property(lambda self: CallableList(variables(self)))
    Trainer.compile = compile
