"""Training that goes on when ranks die, leave or join, under `horovodrun` with a discovery script."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import horovod.tensorflow as horovod
import keras
import numpy as np
import tensorflow as tf
from horovod.common.elastic import ObjectState, State, run_fn
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

from horovodjob_trainer.hvd.collectives import broadcast_variables, is_elastic

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
    """Makes a function whose first argument is a state outlive failures and changes of the ranks.

    It is called again whenever ranks have died, left or joined: from the last commit after a failure, from where
    it was after a change. All ranks have rank 0's state then.
    """

    @functools.wraps(func)
    def guarded(state: Any, *args: Any, **kwargs: Any) -> Any:
        with collective_failures():
            return func(state, *args, **kwargs)

    repeated: Callable[..., Any] = run_fn(guarded, _start_again)
    return repeated


@contextlib.contextmanager
def collective_failures() -> Iterator[None]:
    """Raises the failure of a collective operation as HorovodInternalError, all other errors as they are.

    Horovod's own `run` knows a failure by the words HorovodAllreduce, HorovodAllgather and HorovodBroadcast and
    swallows every other UnknownError: the function then returns as if it had finished.
    """
    try:
        yield
    except (tf.errors.UnknownError, tf.errors.AbortedError) as error:
        text = str(error)
        if "Horovod" not in text and "gloo" not in text:
            raise
        raise HorovodInternalError(text) from error


def _start_again() -> None:
    if not is_elastic():
        raise RuntimeError("ranks can meet again only under `horovodrun --gloo` with --host-discovery-script")
    horovod.shutdown()
    horovod.init()


class KerasState(ObjectState):  # type: ignore[misc]
    """What training needs to go on: a compiled model, its optimizer and the attributes given by keyword.

    `commit()` keeps all of it in the host's memory and raises HostsUpdatedInterrupt, on all ranks at once, if ranks
    are to join or leave. Seeds of random layers are restored but never shared: each rank draws its own dropout.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("the model of a KerasState must be built: give it an Input or call model.build(shape)")
        optimizer = optimizer or getattr(model, "optimizer", None)
        if optimizer is None:
            raise ValueError("the model of a KerasState must be compiled, or its optimizer be given")
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        self._size = horovod.size()
        self._keep_variables()
        super().__init__(bcast_object=horovod.broadcast_object, get_rank=horovod.rank, **kwargs)

    @property
    def variables(self) -> list[Any]:
        """The variables that all ranks share: the model's weights and the optimizer's."""
        return [*self.model.weights, *self.optimizer.variables]

    def save(self) -> None:
        """Keeps the present state in the host's memory."""
        self._keep_variables()
        super().save()
        self._saved_state: dict[str, Any] = copy.deepcopy(self._saved_state)  # a list that grows must not grow here

    def restore(self) -> None:
        """Goes back to what was kept."""
        for variable, value in zip(self._own_variables(), self._kept, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the state of rank 0 and keeps it."""
        with collective_failures():
            broadcast_variables(self.variables, root_rank=0)
            super().sync()
        self._keep_variables()

    def reset(self) -> None:
        """Lets the model's functions be traced again if they could hold the old number of ranks."""
        if self._size != horovod.size():
            self._size = horovod.size()
            self.model.train_function = self.model.test_function = self.model.predict_function = None

    def _own_variables(self) -> list[Any]:
        return [*self.model.variables, *self.optimizer.variables]

    def _keep_variables(self) -> None:
        self._kept = [np.array(variable) for variable in self._own_variables()]

    def _set_attrs(self) -> None:
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)


class TensorFlowKerasState(KerasState):
    """KerasState under the name and with the arguments that `horovod.tensorflow.elastic` has; `backend` is not used."""

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState:
    """Not offered: it exchanges variables while it is made, and a rank that joins later waits for ever."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "TensorFlowState makes ranks that join wait for ever; use hvd.elastic.KerasState(model, optimizer)"
        )


class CommitStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Commits the state every `batches_per_commit` batches and at the end of each epoch. List it last."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit  # the same on ranks that were here and that joined

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            # After the last batch nothing is left to go on with: the end of the epoch is committed instead.
            if not 0 < (self.params.get("steps") or 0) <= getattr(self.state, "batch", 0):
                self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.batch` at the number of batches of this epoch that are done.

    An epoch that goes on after a reset ends when the batches done before and since are as many as it has.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.done_before = 0
        self.ends_epoch = False

    def on_train_begin(self, logs: Any = None) -> None:
        self.done_before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self.done_before + batch + 1
        if self.done_before and not self.model.stop_training:
            self.ends_epoch = 0 < (self.params.get("steps") or 0) <= self.state.batch
            self.model.stop_training = self.ends_epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.ends_epoch:  # it was the epoch that was to stop, not the training
            self.ends_epoch = self.model.stop_training = False
        self.done_before = 0
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps `state.epoch` at the number of epochs that are done, over all resets."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.offset: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.offset = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self.offset is None:  # `fit` may count from 0 again or from initial_epoch
            self.offset = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = (self.offset or 0) + epoch + 1
