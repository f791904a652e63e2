"""Keras callbacks that synchronize the ranks of a job."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer.hvd.broadcast_callback import BroadcastGlobalVariablesCallback
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from horovodjob_trainer.hvd.uneven_steps import report_wait

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces each metric of an epoch by its average over the ranks. List it before callbacks that read metrics.

    Raises ValueError if the ranks have different metrics.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device
        self.first_step = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.first_step = self._completed_steps()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        own = {name: np.asarray(value, np.float64) for name, value in sorted((logs or {}).items())}
        steps = self._completed_steps() - self.first_step
        waits = f"has ended epoch {epoch + 1} after {steps} steps and waits for the metrics of the other ranks"
        with tf.device(self.device), report_wait(waits):
            metrics = exchange.allgather_object(own, name="MetricAverage")
        shapes = [{name: value.shape for name, value in each.items()} for each in metrics]
        for rank, other in enumerate(shapes):
            if other != shapes[0]:
                raise ValueError(
                    f"MetricAverageCallback: epoch {epoch + 1} has the metrics {_listed(shapes[0])} on rank 0 and "
                    f"{_listed(other)} on rank {rank}; give all ranks the same metrics and validation"
                )
        for name, value in own.items():
            average = np.mean([each[name] for each in metrics], axis=0)
            assert logs is not None
            logs[name] = average if value.shape else float(average)

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
