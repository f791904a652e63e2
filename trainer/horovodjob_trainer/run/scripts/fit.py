"""A run of a script that calls `fit` of Keras."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.errors import DataError
from horovodjob_trainer.hvd.fit_callback import FitCallback
from horovodjob_trainer.hvd.leaving import common_end
from horovodjob_trainer.hvd.model_optimizers import used_optimizers
from horovodjob_trainer.run.ranks import check_on_all_ranks
from horovodjob_trainer.run.scripts.batches import Batches, known_batches
from horovodjob_trainer.run.scripts.callback_states import check_callbacks, continue_files
from horovodjob_trainer.run.scripts.options import RunOptions
from horovodjob_trainer.run.scripts.session import ScriptSession, check_ranks, open_session


class RunCallback(FitCallback):
    """Keeps the training of `fit` in a directory, from which the script continues when it starts again.

    Checkpoints are written after `every_steps` steps, after `every_seconds` seconds and at the end of each epoch, and
    the newest `keep` stay. With `resume` "never", a new run begins. It does not continue with other `settings`,
    values of the script such as its learning rate, unless `resume` is "continue". If no checkpoint can be written for
    `failure_seconds`, the run ends. After SIGTERM, all ranks have `grace_seconds` for the same step and its checkpoint.
    `log_seconds` is the time between progress reports. `monitor` is the metric that selects the best epoch, and `mode`
    is "min" or "max": its best value; metrics of Keras have a mode.
    """

    def __init__(self, directory: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._options = RunOptions(Path(directory), **options)
        self._session: ScriptSession | None = None
        self._iterator: Any = None
        self._skipped = self._steps = self._epoch = 0
        self._is_pending = self._has_ended = False
        self._train_function: Any = None

    @contextmanager
    def fit(self, arguments: dict[str, Any]) -> Iterator[None]:
        """Let this call of `fit` continue at the position of the run. `arguments` are those of the call."""
        check_ranks()
        model, given = arguments["self"], _flat(arguments.get("callbacks"), without=self)
        batches = check_on_all_ranks(lambda: _checked_batches(model, arguments, given))
        epochs = int(arguments.get("epochs", 1))
        with (
            open_session(self._options, batches, model, used_optimizers(model), epochs) as session,
            common_end(session.place),
        ):
            self._session, state = session, session.state
            self._steps = -(-batches.epoch_examples // batches.job_batch)
            is_complete = state.stopped or (state.epoch >= epochs and state.unvalidated is None)
            first = epochs if is_complete else state.epoch - (state.unvalidated is not None)
            arguments["initial_epoch"], arguments["shuffle"] = first, False  # the data is shuffled
            arguments["x"] = _PositionedDataset(batches, self._steps, lambda: self._iterator)
            verbose = arguments.get("verbose", "auto")
            callbacks = arguments["callbacks"] = _FitCallbacks(
                self,
                [*given, self],
                add_history=True,
                add_progbar=verbose != 0,
                verbose=verbose,
                epochs=epochs,
                steps=self._steps,
                model=model,
            )
            session.callbacks = [each for each in callbacks.callbacks if each is not self]
            if state.step:
                continue_files(given)
            yield
            if not is_complete:
                session.end()

    def restore_callbacks(self) -> None:
        """Give the other callbacks the states that they had in the run."""
        self._running.restore_callbacks()

    def begin_epoch(self) -> None:
        """Skip the steps of the epoch that the run has completed."""
        session = self._running
        self._is_pending, self._has_ended, self._epoch = False, False, session.state.epoch
        if session.state.unvalidated is not None:
            self._skipped, self._iterator = self._steps, iter(tf.data.Dataset.range(0))  # of no step
        else:
            session.begin_epoch()
            self._iterator = session.iterator
            self._skipped = self._steps - (session.steps_in_epoch - session.step_in_epoch)
        if self._skipped:
            self._train_function = self.model.train_function
            self.model.train_function = _no_step
        if self._skipped == self._steps:
            self.model.__dict__["get_metrics_result"] = dict  # Keras raises an error for metrics of no step

    def begin_step(self) -> None:
        """End the previous step of the epoch."""
        self._end_pending_step()
        self._restore_train_function()

    def complete_step(self) -> None:
        """Let the current step be one of the run, when the other callbacks have seen its end."""
        self._is_pending = True

    def skips(self, step: int) -> bool:
        """Whether the run has completed this step of the epoch."""
        return step < self._skipped

    def end_steps(self) -> None:
        """End the steps of an epoch, before a validation."""
        if self._has_ended:
            return
        self._has_ended = True
        self._end_pending_step()
        self._restore_train_function()
        state = self._running.state
        if state.unvalidated is None and state.epoch == self._epoch:
            if not self.model.stop_training:
                raise DataError(self._running.data_end())
            return  # another callback has ended the epoch
        if state.unvalidated is None:
            self._running.end_epoch(self.model.get_metrics_result())

    def epoch_logs(self, logs: Mapping[str, Any] | None) -> dict[str, Any]:
        """The logs of an epoch, also of one whose steps an earlier start has run."""
        own = self._running.state.unvalidated if self._skipped == self._steps else None
        return {**(own or {}), **(logs or {})}

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._running.state.stopped = bool(self.model.stop_training)
        if self._running.state.unvalidated is not None:
            self._running.end_validation({**(logs or {}), **self._learning_rate()})

    def _end_pending_step(self) -> None:
        if self._is_pending:
            self._is_pending = False
            self._running.end_step(lambda: {**self.model.get_metrics_result(), **self._learning_rate()})

    def _restore_train_function(self) -> None:
        if self._train_function is not None:
            self.model.train_function, self._train_function = self._train_function, None
            self.model.__dict__.pop("get_metrics_result", None)

    def _learning_rate(self) -> dict[str, Any]:
        return {"learning_rate": float(self.model.optimizer.learning_rate)}

    @property
    def _running(self) -> ScriptSession:
        assert self._session is not None
        return self._session


class _FitCallbacks(keras.callbacks.CallbackList):  # type: ignore[misc]
    """The callbacks of a call of `fit`, which do not see the steps that the run has completed before."""

    def __init__(self, run: RunCallback, callbacks: list[Any], **arguments: Any) -> None:
        super().__init__(callbacks, **arguments)
        self.run = run

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self.run.restore_callbacks()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.run.begin_epoch()
        for callback in self.callbacks:
            # The rate of the run is already that of the epoch, from which a schedule could compute the next one.
            if not (self.run.skips(0) and isinstance(callback, keras.callbacks.LearningRateScheduler)):
                callback.on_epoch_begin(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.run.skips(batch):
            self.run.begin_step()
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.run.skips(batch):
            super().on_train_batch_end(batch, logs)
            self.run.complete_step()

    def on_test_begin(self, logs: Any = None) -> None:
        self.run.end_steps()
        super().on_test_begin(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.run.end_steps()
        super().on_epoch_end(epoch, self.run.epoch_logs(logs))


class _PositionedDataset(tf.data.Dataset):  # type: ignore[misc]
    """A dataset for `fit` with a known number of steps, whose iterator is that of the run."""

    def __init__(self, batches: Batches, steps: int, iterator: Callable[[], Any]) -> None:
        self._specification, self._steps, self._iterator = batches.element_spec, steps, iterator
        super().__init__(tf.data.Dataset.range(steps)._variant_tensor)

    @property
    def element_spec(self) -> Any:
        return self._specification

    def _inputs(self) -> list[Any]:
        return []

    def cardinality(self) -> Any:
        return tf.constant(self._steps, tf.int64)

    def __iter__(self) -> Any:
        return self._iterator()


def _checked_batches(model: Any, arguments: dict[str, Any], callbacks: list[Any]) -> Batches:
    """The batches of a call of `fit`. Raises ValueError if it cannot be that of a run."""
    batches = known_batches(arguments.get("x"), arguments.pop("steps_per_epoch", None))
    _check_call(model, arguments)
    check_callbacks(callbacks)
    return batches


def _check_call(model: Any, arguments: Mapping[str, Any]) -> None:
    if not model.built:
        raise ValueError("the model of a run must be built: add an Input, or call the model with a batch")
    if not used_optimizers(model):
        raise ValueError("the model of a run must be compiled with an optimizer")
    if int(model.steps_per_execution) != 1:
        raise ValueError("a run records each step: compile the model with steps_per_execution=1")
    for name in ("class_weight", "initial_epoch"):
        if arguments.get(name):
            remedy = "the run continues at its own epoch" if name == "initial_epoch" else "let the data have weights"
            raise ValueError(f"fit with RunCallback does not support {name}: {remedy}")


def _flat(callbacks: Any, *, without: Any) -> list[Any]:
    given = callbacks.callbacks if isinstance(callbacks, keras.callbacks.CallbackList) else callbacks
    return [each for each in keras.tree.flatten(given or []) if each is not without]


def _no_step(_: Any) -> dict[str, Any]:
    return {}
