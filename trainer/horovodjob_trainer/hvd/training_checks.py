"""Checks of `fit` on several ranks: the number of steps, the gradient reduction and the weights of the ranks."""

import contextlib
import functools
import inspect
import warnings
import weakref
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from horovodjob_trainer.hvd.broadcast_callback import BroadcastGlobalVariablesCallback
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.first_batch import FirstBatchCallback
from horovodjob_trainer.hvd.fit_callback import FitCallback
from horovodjob_trainer.hvd.gradient_reducer import GradientReducer, variable_key
from horovodjob_trainer.hvd.leaving import ERROR_SECONDS, break_seconds, common_end, leave, named_place
from horovodjob_trainer.hvd.optimizer import gradient_reduction
from horovodjob_trainer.hvd.presence import begin_step, come_back
from horovodjob_trainer.hvd.process_sets import is_elastic
from horovodjob_trainer.hvd.stop_agreement import StepStopAgreement, stop_agreement
from horovodjob_trainer.hvd.uneven_steps import REMEDY, listed, step_difference
from horovodjob_trainer.hvd.usage import USAGE
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.start import is_watched, watched

CallbackList = keras.callbacks.CallbackList
_warnings: set[str] = set()
_checked_models: "weakref.WeakSet[Any]" = weakref.WeakSet()


class StepRecord(FirstBatchCallback):
    """Records what `fit` does, for the watch of the ranks. It is the first callback."""

    completed_steps = 0
    """Those of the epoch, which the patched CallbackList counts: for a method
    of this class at the end of a batch, Keras would wait for the metrics."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps = self.completed_steps = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        ACTIVITY.begin_batch(is_first=not self.steps)
        begin_step()
        super().on_train_batch_begin(batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        ACTIVITY.progress()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        ACTIVITY.end_epoch()
        super().on_epoch_end(epoch, logs)


class TrainingChecks(StepRecord):
    """Compares the ranks after the first batch, and warns once on rank 0."""

    def __init__(self, callbacks: list[Any], *, validates: bool) -> None:
        super().__init__()
        self.validates = validates
        self.others = [each for each in callbacks if isinstance(each, FirstBatchCallback)]
        broadcasts = [each for each in callbacks if isinstance(each, BroadcastGlobalVariablesCallback)]
        self.averages_statistics = any(each.average_statistics for each in broadcasts)
        self.epoch = self.reductions = 0
        self.has_ended_steps = self.has_ended_epoch = self.has_ended = self.knows_steps = False

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self.reductions = USAGE.gradient_reductions
        if (reducer := self._active_reducer()) is None:
            return
        own = self.params.get("steps"), self.validates
        ranks = exchange.allgather_object(own, name="HorovodSteps", process_set=reducer.process_set)
        steps, validating = zip(*ranks, strict=True)
        if difference := step_difference(steps):
            raise ValueError(f"{difference}; {REMEDY}")
        self.knows_steps = None not in steps
        if len(set(validating)) > 1 and reducer.process_set.rank() == 0:
            without = listed([rank for rank, each in enumerate(validating) if not each])
            _warn_once(
                f"no validation data on {without}: its callbacks have no val_ metrics, by which those of the other "
                "ranks can save a model or change the learning rate; pass the same validation_data on all ranks"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self.epoch = epoch
        self.has_ended_steps = self.has_ended_epoch = False

    def on_test_begin(self, logs: Any = None) -> None:
        super().on_test_begin(logs)
        self._end_steps()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        self._end_steps()
        self.has_ended_epoch = True

    def on_train_end(self, logs: Any = None) -> None:
        self.has_ended = True

    def after_first_batch(self) -> None:
        if self.model in _checked_models:
            return
        _checked_models.add(self.model)
        if reducer := self._active_reducer():
            self._compare_ranks(reducer)
        elif (
            gradient_reduction(self.model.optimizer) is None
            and self.reductions == USAGE.gradient_reductions
            and exchange.rank() == 0
        ):
            _warn_once(
                f"fit trains on {exchange.size()} ranks, and each rank trains alone: the gradients are not averaged. "
                "Wrap the optimizer with hvd.DistributedOptimizer"
            )

    def _end_first_batch(self) -> None:
        # Ranks reach this point in different methods if only one of them has validation data.
        for each in self.others:
            each._end_first_batch()
        super()._end_first_batch()

    def _end_steps(self) -> None:
        """Raise RuntimeError if the data of this rank has ended before that of other ranks, which then end, too.

        If the number of steps is known, a rank asks the others only after fewer.
        """
        if self.has_ended_steps or (reducer := self._active_reducer()) is None:
            return
        self.has_ended_steps = True
        # Keras begins a step for which the data has no batch, and the optimizer can count it.
        is_short = not self.knows_steps or self.completed_steps < self.params["steps"]
        if reducer.process_set.size() != exchange.size() or not is_short:
            return
        step, rank = f"step {self.steps} of epoch {self.epoch + 1}", exchange.rank()
        seconds = ERROR_SECONDS if self.knows_steps else break_seconds()
        if not leave(f"{step}, for which its data has no batch", seconds):
            raise RuntimeError(f"the data of rank {rank} has ended before {step}; {REMEDY}")
        come_back()

    def _active_reducer(self) -> GradientReducer | None:
        """The reducer of the optimizer, if it needs other ranks and their number cannot change."""
        reduction = gradient_reduction(self.model.optimizer)
        return reduction.reducer if reduction and reduction.reducer.is_active() and not is_elastic() else None

    def _compare_ranks(self, reducer: GradientReducer) -> None:
        own = _checksums(self.model, reducer.local)
        ranks = exchange.allgather_object(own, name="HorovodChecksums", process_set=reducer.process_set)
        if reducer.process_set.rank() != 0:
            return
        weights, statistics = (_differences([each[kind] for each in ranks]) for kind in (0, 1))
        if weights:
            _warn_once(
                f"the weights differ between the ranks ({weights}): pass "
                "hvd.callbacks.BroadcastGlobalVariablesCallback(0) to fit"
            )
        elif statistics and not self.averages_statistics:
            _warn_once(
                f"each rank has its own statistics of the data ({statistics}), and rank 0 would save only its own: "
                "hvd.callbacks.BroadcastGlobalVariablesCallback(0, average_statistics=True) averages them"
            )

    def place(self) -> str:
        """Where this rank is, for messages."""
        if self.has_ended:
            return "the end of the training"
        if self.has_ended_steps or self.has_ended_epoch:
            return f"the end of epoch {self.epoch + 1}"
        return f"step {self.steps} of epoch {self.epoch + 1}" if self.steps else f"the start of epoch {self.epoch + 1}"


def patch_fit() -> None:
    """Let `fit` of Keras models check the ranks, and name rank and step when another rank ends during the training."""
    trainer = next(kind for kind in keras.Model.__mro__ if "fit" in vars(kind))
    original: Callable[..., Any] = trainer.fit
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        with contextlib.ExitStack() as contexts:
            for callback in _callbacks(call.arguments):
                if isinstance(callback, FitCallback):
                    contexts.enter_context(callback.fit(call.arguments))
            return checked_fit(call)

    def fit_alone(call: inspect.BoundArguments) -> Any:
        if is_elastic() or not is_watched():
            return original(*call.args, **call.kwargs)
        _add_callbacks(call.arguments, first=StepRecord())
        with watched(exchange):
            return original(*call.args, **call.kwargs)

    def checked_fit(call: inspect.BoundArguments) -> Any:
        if not exchange.is_initialized():
            return original(*call.args, **call.kwargs)
        if exchange.size() == 1:
            return fit_alone(call)
        model, callbacks = call.arguments["self"], _callbacks(call.arguments)
        validates = call.arguments.get("validation_data") is not None or bool(call.arguments.get("validation_split"))
        checks = TrainingChecks(callbacks, validates=validates)
        with contextlib.ExitStack() as contexts:
            if not is_elastic():
                contexts.enter_context(named_place(checks.place))
            if (process_set := _common_ranks(model, callbacks)) is None:
                _add_callbacks(call.arguments, first=checks)
            else:
                _add_callbacks(call.arguments, first=checks, last=stop_agreement(callbacks, process_set))
                if process_set.size() == exchange.size():
                    contexts.enter_context(watched(exchange))
                    contexts.enter_context(common_end(checks.place))
            return original(*call.args, **call.kwargs)

    trainer.fit = fit
    _count_completed_steps()


def _count_completed_steps() -> None:
    original = CallbackList.on_train_batch_end

    @functools.wraps(original)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        if self.callbacks and isinstance(self.callbacks[0], StepRecord):
            self.callbacks[0].completed_steps += 1
        original(self, batch, logs)

    CallbackList.on_train_batch_end = on_train_batch_end


def _common_ranks(model: Any, callbacks: list[Any]) -> Any:
    """The ranks that must train with the same steps, None if it is not known, or if their number can change."""
    if is_elastic():
        return None
    reduction = gradient_reduction(getattr(model, "optimizer", None))
    if reduction is not None and reduction.reducer.is_active():
        return reduction.reducer.process_set
    return exchange.global_process_set if any(isinstance(each, FitCallback) for each in callbacks) else None


def _add_callbacks(arguments: dict[str, Any], first: Any, last: Any = None) -> None:
    given, added = arguments.get("callbacks"), [each for each in (first, last) if each is not None]
    if not isinstance(given, CallbackList):
        arguments["callbacks"] = [first, *_callbacks(arguments), *added[1:]]
        return
    for each in added:
        each.set_model(arguments["self"])
        each.set_params(given.params)
        if isinstance(each, StepStopAgreement):
            given._async_train = False  # it acts after the other callbacks of the step
    given.callbacks[:] = [first, *given.callbacks, *added[1:]]


def _callbacks(arguments: Mapping[str, Any]) -> list[Any]:
    given = arguments.get("callbacks")
    return list(given.callbacks if isinstance(given, CallbackList) else keras.tree.flatten(given or []))


def _checksums(model: Any, local: dict[int, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Checksums of the trainable weights and of the statistics, both without local variables."""
    weights: dict[str, int] = {}
    statistics: dict[str, int] = {}
    for number, variable in enumerate(each for each in model.weights if variable_key(each) not in local):
        kind = weights if variable.trainable else statistics
        kind[f"{number}: {variable.path}"] = zlib.crc32(np.ascontiguousarray(variable.numpy()).tobytes())
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization) and layer.built:
            values = np.stack([np.asarray(layer.mean), np.asarray(layer.variance)])
            statistics[f"{len(statistics)}: {layer.path}"] = zlib.crc32(values.astype(np.float64).tobytes())
    return weights, statistics


def _differences(ranks: list[dict[str, int]]) -> str:
    """The first variable whose checksum differs, with the number of others; empty if there is none."""
    rows = [list(each.values()) for each in ranks]
    names = [name.partition(": ")[2] for name, *sums in zip(ranks[0], *rows, strict=False) if len(set(sums)) > 1]
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _warn_once(text: str) -> None:
    kind = text.partition(" (")[0]
    if kind not in _warnings:
        _warnings.add(kind)
        warnings.warn(f"Horovod: {text}", stacklevel=2)
