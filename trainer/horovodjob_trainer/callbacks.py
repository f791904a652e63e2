"""Progress reports of the trainer for scripts that call `model.fit`."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras

from horovodjob_trainer.reporting.best_values import BestValues, check_mode, declared_modes, own_mode
from horovodjob_trainer.reporting.metric_values import all_values, without_elements
from horovodjob_trainer.reporting.reporter import Reporter, TrainingPosition


def _log(text: str) -> None:
    print(text, flush=True)


class ProgressCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Reports the progress of `fit` on rank 0: on stdout, in progress.jsonl and in the status of the HorovodJob.

    `batch_size` is that of one rank; without it, the rate is in batches per second. `directory` is that of
    progress.jsonl (default: that of the log files of the job). `log` receives the lines for stdout. `monitor` is the
    metric that selects the best epoch, and `mode` is "min" or "max": its best value. Metrics of Keras have a mode.
    """

    _supports_tf_logs = True  # Keras 2 would convert the metrics of each step, also of those without a report.

    def __init__(
        self,
        batch_size: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        seconds: float = 5.0,
        log: Callable[[str], None] = _log,
        monitor: str | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__()
        check_mode(monitor, mode)
        self.batch_size, self.seconds, self.log = batch_size, seconds, log
        self.monitor, self.mode = monitor, mode
        self.directory: Path | None = Path(directory or os.environ.get("AZ_BATCHAI_STDOUTERR_DIR") or ".")
        self.reporter: Reporter | None = None
        self.epoch = self.step = self.global_step = 0
        self.ranks = 1

    def on_train_begin(self, logs: Any = None) -> None:
        rank, self.ranks = self._rank_and_size()
        if rank != 0:
            return
        self.reporter = Reporter(
            directory=self.directory,
            ranks=self.ranks,
            interval_seconds=self.seconds,
            log=self.log,
            unit="samples" if self.batch_size else "batches",
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch, self.step = epoch, 0
        if self.reporter:
            self.reporter.begin(self._examples())

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self.step, self.global_step = batch + 1, self.global_step + 1
        if self.reporter and self.reporter.is_due():
            self._report(logs)

    def on_test_begin(self, logs: Any = None) -> None:
        if self.reporter:
            self.reporter.pause(self._examples())

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.reporter:
            self._report(logs)

    def on_train_end(self, logs: Any = None) -> None:
        if self.reporter:
            self.reporter.close(done=True)

    def _report(self, logs: Mapping[str, Any] | None) -> None:
        assert self.reporter is not None
        metrics = all_values(logs or {})
        steps, epochs = self._steps(), int(self.params.get("epochs") or 1)
        position = TrainingPosition(
            epoch=self.epoch + 1,
            epochs=epochs,
            step=self.step,
            steps_per_epoch=steps,
            examples=self._examples(),
            total_examples=epochs * steps * self._job_batch(),
            global_step=self.global_step,
        )
        self.reporter.report(position, metrics, self._learning_rate(), self._best_values(metrics))

    def _best_values(self, metrics: Mapping[str, float]) -> BestValues:
        """The modes of the metrics; the operator knows the ends of their values, because each epoch is reported."""
        compiled = (getattr(metric, "metrics", None) or (metric,) for metric in self.model.metrics)
        modes = declared_modes(without_elements(metrics), (each for group in compiled for each in group))
        return BestValues(self.monitor, modes | own_mode(self.monitor, self.mode), {})

    def _rank_and_size(self) -> tuple[int, int]:
        from horovodjob_trainer import hvd  # It needs Keras 3, which a script of 2018 does not have.

        return (hvd.rank(), hvd.size()) if hvd.is_initialized() else (0, 1)

    def _learning_rate(self) -> float:
        try:
            return float(self.model.optimizer.learning_rate)
        except TypeError:  # Keras 2 has a schedule here.
            return math.nan

    def _examples(self) -> int:
        return (self.epoch * self._steps() + self.step) * self._job_batch()

    def _steps(self) -> int:
        return int(self.params.get("steps") or 0) or max(self.step, 1)

    def _job_batch(self) -> int:
        """Number of examples of all ranks in a step, or of batches if the batch size is unknown."""
        return (self.batch_size or 1) * self.ranks
