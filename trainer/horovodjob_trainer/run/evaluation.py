"""Evaluation of the model on the test examples during and after training."""

from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.data import Source
from horovodjob_trainer.data.example_reader import data_error
from horovodjob_trainer.run.coordination import average_over_ranks
from horovodjob_trainer.run.termination import Termination


class Evaluation:
    """Loss and metrics over the test examples of all ranks, in which each example has the same weight."""

    def __init__(self, model: Any, source: Source, batches: Any, termination: Termination) -> None:
        self.model, self.source, self.batches, self.termination = model, source, batches, termination
        self._metrics: dict[str, float] = {}
        self._metrics_position = -1

    def metrics(self, position: int) -> dict[str, float]:
        """The metrics after `position` examples; computed once for each position."""
        if self._metrics_position != position:
            self._metrics, self._metrics_position = self._evaluate(), position
        return self._metrics

    def _evaluate(self) -> dict[str, float]:
        samples = len(range(hvd.rank(), self.source.samples, hvd.size()))
        callbacks = [_HeartbeatCallback(self.termination)]
        try:
            values = (
                self.model.evaluate(self.batches, verbose=0, return_dict=True, callbacks=callbacks) if samples else {}
            )
        except tf.errors.OpError as error:
            raise data_error(error, self.source) or error from error
        return average_over_ranks({name: float(value) for name, value in values.items()}, samples)


class _HeartbeatCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sends a heartbeat after each batch of an evaluation."""

    def __init__(self, termination: Termination) -> None:
        super().__init__()
        self.termination = termination

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.termination.heartbeat()
