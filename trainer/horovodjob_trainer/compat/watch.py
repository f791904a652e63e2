"""The watch of the steps of a training with Keras 2. Their graph has no marks of the exchange."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import BoundArguments, signature
from typing import Any

import tensorflow as tf

from horovodjob_trainer.launch import Launch
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.start import is_watched, watched

REDUCTION = "_allreduce_grads"  # of a distributed optimizer of Horovod for Keras 2


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The exchange of the script."""

    launch: Launch
    horovod: Any

    def rank(self) -> int:
        return self.launch.rank

    def allgather_object(self, *values: Any, **options: Any) -> Any:
        return [values[0]] if self.launch.size == 1 else self.horovod.allgather_object(*values, **options)


def watch_trainings(launch: Launch) -> None:
    """Watch every `fit` in which the ranks train together, or one rank alone."""
    if not is_watched():
        return
    from keras import Model

    original = Model.fit
    parameters = signature(original)

    @wraps(original)
    def fit(*positional: Any, **named: Any) -> Any:
        call = parameters.bind(*positional, **named)
        with _watch(launch, call):
            return original(*call.args, **call.kwargs)

    Model.fit = fit


def _watch(launch: Launch, call: BoundArguments) -> AbstractContextManager[None]:
    horovod = sys.modules.get("horovod.tensorflow")
    optimizer = getattr(call.arguments["self"], "optimizer", None)
    is_common = horovod is not None and horovod.is_initialized() and hasattr(optimizer, REDUCTION)
    if not (tf.executing_eagerly() and (is_common or launch.size == 1)):
        return nullcontext()
    _add_record(call.arguments)
    return watched(_Ranks(launch, horovod))


def _add_record(arguments: dict[str, Any]) -> None:
    from keras.callbacks import Callback, CallbackList

    class StepRecord(Callback):  # type: ignore[misc]
        """Records what `fit` does."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.is_first = True

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            ACTIVITY.begin_batch(is_first=self.is_first)
            self.is_first = False

        def on_test_begin(self, logs: Any = None) -> None:
            if ACTIVITY.current is Section.STEP:
                ACTIVITY.enter(Section.VALIDATION)

        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            ACTIVITY.progress()

        def on_test_end(self, logs: Any = None) -> None:
            if ACTIVITY.current is Section.VALIDATION:
                ACTIVITY.enter(Section.STEP)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ACTIVITY.end_epoch()

    given = arguments.get("callbacks") or []
    if isinstance(given, CallbackList):
        given.append(StepRecord())
    else:
        arguments["callbacks"] = [StepRecord(), *(given if isinstance(given, list | tuple) else [given])]
