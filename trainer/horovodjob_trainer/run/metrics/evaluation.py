"""Evaluation of the model on the test examples during and after training, and metrics over those of all ranks."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.data import Source
from horovodjob_trainer.data.reading.example_reader import data_error
from horovodjob_trainer.hvd.metric_reduction import MetricStates, reduce_metrics
from horovodjob_trainer.reporting.metric_values import all_values
from horovodjob_trainer.run.coordination import termination_is_requested
from horovodjob_trainer.run.termination import Termination
from horovodjob_trainer.watch.activity import ACTIVITY


class Evaluation:
    """Loss and metrics over the test examples of all ranks, in which each example has the same weight."""

    def __init__(
        self,
        model: Any,
        source: Source,
        batches: Any,
        prepare: Callable[..., Any],
        *,
        batch: int,
        termination: Termination,
    ) -> None:
        prepare_in_steps(model, prepare)
        self.model, self.source, self.batches = model, source, batches
        self.batch, self.termination = batch, termination
        self._metrics: dict[str, float] | None = None
        self._metrics_position = -1

    def metrics(self, position: int) -> dict[str, float] | None:
        """The metrics after `position` examples; computed once for each position. None if SIGTERM interrupts it."""
        if self._metrics_position != position:
            self._metrics, self._metrics_position = self._evaluate(), position
        return self._metrics

    def _evaluate(self) -> dict[str, float] | None:
        samples = len(range(hvd.rank(), self.source.samples, hvd.size()))
        most_batches = -(-len(range(0, self.source.samples, hvd.size())) // self.batch)
        rounds = _TerminationRounds(self.model, self.termination)
        # Batches in the memory of a GPU do not know their number, and Keras would warn that they end.
        is_unknown = self.batches.cardinality() == tf.data.UNKNOWN_CARDINALITY
        steps = -(-samples // self.batch) if is_unknown else None
        given = {"steps": steps, "verbose": 0, "return_dict": True, "callbacks": rounds}
        self.termination.expect_pause()
        try:
            values = self.model.evaluate(self.batches, **given) if samples else {}
            if rounds.is_terminated_by(most_batches):
                return None
        except tf.errors.OpError as error:
            raise data_error(error, self.source) or error from error
        return metrics_over_ranks(self.model, values, samples)


def prepare_in_steps(model: Any, prepare: Callable[..., Any]) -> None:
    """Make evaluate() and predict() of the model prepare each batch within the compiled step, on the device."""
    for name in ("test_step", "predict_step"):
        step = getattr(type(model), name)
        object.__setattr__(model, name, lambda data, step=step: step(model, prepare(*data)))


def metrics_over_ranks(model: Any, logs: Mapping[str, Any], weight: float) -> dict[str, float]:
    """The metrics over the examples of all ranks, also the elements of vectors. Every rank must call it.

    A rank without examples takes part with the weight 0.
    """
    states = MetricStates.of(model) if weight else MetricStates()
    return all_values(reduce_metrics(model, logs, states, weight))


class _TerminationRounds(keras.callbacks.CallbackList):  # type: ignore[misc]
    """Ends an evaluation on all ranks about a second after one of them has received SIGTERM.

    All ranks exchange messages after the same numbers of batches, also a rank that has fewer batches than the others.
    For a callback in a list, Keras would wait for the device after each batch, to convert the logs.
    """

    def __init__(self, model: Any, termination: Termination) -> None:
        super().__init__(model=model)
        self.termination, self.start = termination, time.monotonic()
        self.is_terminated, self.next_round = False, 1

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.termination.heartbeat()
        ACTIVITY.progress()
        self.model.stop_evaluating = self.is_terminated_by(batch + 1)

    def is_terminated_by(self, batches: int) -> bool:
        """Whether a round up to this number of batches ends the evaluation."""
        while not self.is_terminated and self.next_round <= batches:
            seconds = (time.monotonic() - self.start) / self.next_round
            self.is_terminated, interval = termination_is_requested(self.termination.requested, seconds)
            self.next_round += interval
        return self.is_terminated
