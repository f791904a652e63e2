"""Elastic training: it continues when ranks fail, leave or join, with `horovodrun` and a discovery script."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer.hvd.collectives import broadcast_variables
from horovodjob_trainer.hvd.elastic_callbacks import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.model_optimizers import used_optimizers
from horovodjob_trainer.hvd.process_sets import is_elastic

HorovodInternalError, HostsUpdatedInterrupt = exchange.HorovodInternalError, exchange.HostsUpdatedInterrupt
ObjectState: Any = exchange.ObjectState
State: Any = exchange.State

__all__ = [
    "CommitStateCallback",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "KerasState",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for a function with a state as first argument, which then survives changes of the ranks.

    It is called again after ranks have failed, left or joined: from the last commit after a failure, from the current
    state after a change. Before each call, all ranks get the state of rank 0.
    """

    @functools.wraps(func)
    def call(state: Any, *args: Any, **kwargs: Any) -> Any:
        with collective_failures():
            return func(state, *args, **kwargs)

    elastic_function: Callable[..., Any] = exchange.run_fn(call, _reset)
    return elastic_function


@contextlib.contextmanager
def collective_failures() -> Iterator[None]:
    """Convert the failure of a collective operation to HorovodInternalError. Other errors do not change.

    `run` of Horovod identifies a failure by the words HorovodAllreduce, HorovodAllgather and HorovodBroadcast. It
    ignores every other UnknownError: the function then returns as if it had completed.
    """
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.AbortedError) as error:
        text = str(error)
        if "Horovod" not in text and "gloo" not in text:
            raise
        raise HorovodInternalError(text) from error


def _reset() -> None:
    if not is_elastic():
        raise RuntimeError("elastic training needs `horovodrun --gloo` with --host-discovery-script")
    exchange.shutdown()
    exchange.init()


class KerasState(ObjectState):  # type: ignore[misc]
    """The state of an elastic training: a compiled model, its optimizers and the keyword arguments as attributes.

    `commit()` saves the state in the memory of the host. It raises HostsUpdatedInterrupt, on all ranks at the same
    time, if ranks will join or leave. The seeds of random layers are restored but not broadcast: each rank has its own
    dropout.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("the model of a KerasState must be built: add an Input or call model.build(shape)")
        optimizer = optimizer or getattr(model, "optimizer", None)
        if optimizer is None:
            raise ValueError("the model of a KerasState must be compiled, or pass its optimizer")
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        others = [each for each in used_optimizers(model) if each is not optimizer]
        self._optimizer_variables = [each for part in (optimizer, *others) for each in part.variables]
        self._size = exchange.size()
        self._save_variables()
        super().__init__(bcast_object=exchange.broadcast_object, get_rank=exchange.rank, **kwargs)

    @property
    def variables(self) -> list[Any]:
        """The variables that are equal on all ranks: those of the optimizer and the weights of the model."""
        return [*self.model.weights, *self._optimizer_variables]

    def save(self) -> None:
        """Save the current state in the memory of the host."""
        self._save_variables()
        super().save()
        self._saved_state: dict[str, Any] = copy.deepcopy(
            self._saved_state
        )  # later changes of a list must not change the saved state

    def restore(self) -> None:
        """Restore the saved state."""
        for variable, value in zip(self._all_variables(), self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Broadcast the state of rank 0 to all ranks and save it."""
        with collective_failures():
            broadcast_variables(self.variables, root_rank=0)
            super().sync()
        self._save_variables()

    def reset(self) -> None:
        """Trace the functions of the model again if the number of ranks has changed."""
        if self._size != exchange.size():
            self._size = exchange.size()
            self.model.train_function = self.model.test_function = self.model.predict_function = None

    def _all_variables(self) -> list[Any]:
        return [*self.model.variables, *self._optimizer_variables]

    def _save_variables(self) -> None:
        self._saved_values = [np.array(variable) for variable in self._all_variables()]

    def _set_attrs(self) -> None:
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)


class TensorFlowKerasState(KerasState):
    """KerasState with the name and the arguments in `horovod.tensorflow.elastic`. `backend` is not used."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState:
    """Not supported: its constructor broadcasts variables, so a rank that joins later waits indefinitely."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "TensorFlowState makes ranks that join wait indefinitely; use hvd.elastic.KerasState(model, optimizer)"
        )
