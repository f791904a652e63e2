"""Keras callbacks that synchronize the ranks of a job."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer.hvd.broadcast_callback import BroadcastGlobalVariablesCallback
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from horovodjob_trainer.hvd.metric_reduction import MetricStates, examples_of, reduce_metrics
from horovodjob_trainer.hvd.uneven_steps import report_wait

VALIDATION = "val_"  # how Keras begins the names of the metrics of a validation

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces each metric of an epoch by that of all ranks. List it before callbacks that read metrics.

    A metric of Keras is computed from the sums over the examples of all ranks. It also acts as a callback of
    `evaluate`. Raises ValueError if the ranks have different metrics.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device
        self.first_step = 0
        self.evaluation: dict[str, Any] = {}
        """The metrics of an evaluation outside of `fit`, which `evaluate` returns."""
        self._is_in_fit = False
        self._training: tuple[MetricStates, float] | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self._is_in_fit = True

    def on_train_end(self, logs: Any = None) -> None:
        self._is_in_fit = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.first_step, self._training = self._completed_steps(), None

    def on_test_begin(self, logs: Any = None) -> None:
        if self._is_in_fit:  # the validation resets the states
            self._training = MetricStates.of(self.model), examples_of(self.model)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self.evaluation = {}
        if not self._is_in_fit and logs:
            self._reduce(logs, "", "the evaluation", "has ended the evaluation")
            self.evaluation = dict(logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        steps = self._completed_steps() - self.first_step
        waits = f"has ended epoch {epoch + 1} after {steps} steps"
        self._reduce({} if logs is None else logs, VALIDATION, f"epoch {epoch + 1}", waits)

    def _reduce(self, logs: dict[str, Any], validation: str, place: str, waits: str) -> None:
        """Replace the values in the logs, those of the training and of the validation separately."""
        own = {name: np.asarray(value, np.float64) for name, value in sorted(logs.items())}
        with tf.device(self.device), report_wait(f"{waits} and waits for the metrics of the other ranks"):
            ranks = exchange.allgather_object({name: each.shape for name, each in own.items()}, name="MetricAverage")
        for rank, other in enumerate(ranks):
            if other != ranks[0]:
                raise ValueError(
                    f"MetricAverageCallback: {place} has the metrics {_listed(ranks[0])} on rank 0 and "
                    f"{_listed(other)} on rank {rank}; give all ranks the same metrics and validation"
                )
        current = MetricStates.of(self.model), examples_of(self.model)
        of_validation = {name for name in own if validation and name.startswith(validation)}
        parts = [(of_validation, validation, current), (own.keys() - of_validation, "", self._training or current)]
        for names, prefix, (states, examples) in parts:
            values = {name.removeprefix(prefix): own[name] for name in sorted(names)}
            if not values:
                continue
            for name, value in reduce_metrics(self.model, values, states, examples).items():
                logs[prefix + name] = value if value.shape else float(value)

    def _completed_steps(self) -> int:
        # Keras also begins a step for which a generator has no batch.
        return int(getattr(self.model.optimizer, "_iterations", 0))


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" if shape else name for name, shape in shapes.items()) or "(none)"


class BestModelCheckpoint:
    """Not supported: the callback of Horovod sets no path, and Keras 3 rejects a checkpoint without a path."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "BestModelCheckpoint is not supported: use keras.callbacks.ModelCheckpoint(save_best_only=True) on rank 0"
        )
