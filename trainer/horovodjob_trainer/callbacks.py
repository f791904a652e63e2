"""For scripts of your own with `model.fit`: the reports that the trainer's own program makes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from horovodjob_trainer import hvd
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.reporting.progress_client import Poster
from horovodjob_trainer.reporting.reporter import Place, Reporter


class ProgressCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells how far `fit` is: lines on stdout, progress.jsonl, and the status of the HorovodJob; on rank 0 alone.

    `batch_size` is that of one rank, where `fit` cannot say it; `directory` is that of progress.jsonl, by default
    that of the job's log files.
    """

    def __init__(
        self, batch_size: int | None = None, directory: str | os.PathLike[str] | None = None, seconds: float = 5.0
    ) -> None:
        super().__init__()
        self.batch_size, self.seconds = batch_size, seconds
        self.directory = Path(directory or os.environ.get("AZ_BATCHAI_STDOUTERR_DIR") or ".")
        self.reporter: Reporter | None = None
        self.epoch = self.step = self.done = 0
        self.ranks = 1

    def on_train_begin(self, logs: Any = None) -> None:
        if hvd.is_initialized() and hvd.rank() != 0:
            return
        if hvd.is_initialized():
            self.ranks = hvd.size()
        self.reporter = Reporter(
            logs=self.directory,
            tensorboard=None,
            attempt=Launch.from_environment(os.environ).attempt,
            ranks=self.ranks,
            seconds=self.seconds,
            poster=Poster.from_environment(os.environ, _say),
            say=_say,
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch, self.step = epoch, 0
        if self.reporter:
            self.reporter.begin(self._position())

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self.step, self.done = batch + 1, self.done + 1
        if self.reporter and self.reporter.due():
            self._report(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.reporter:
            self._report(logs)

    def on_train_end(self, logs: Any = None) -> None:
        if self.reporter:
            self.reporter.close(done=True)

    def _report(self, logs: Mapping[str, Any] | None) -> None:
        assert self.reporter is not None
        metrics = {name: float(value) for name, value in (logs or {}).items()}
        steps, epochs = self._steps(), int(self.params.get("epochs") or 1)
        place = Place(
            self.epoch + 1, epochs, self.step, steps, self._position(), epochs * steps * self._batch(), self.done
        )
        self.reporter.report(place, metrics, float(self.model.optimizer.learning_rate))

    def _position(self) -> int:
        return (self.epoch * self._steps() + self.step) * self._batch()

    def _steps(self) -> int:
        return int(self.params.get("steps") or 0) or max(self.step, 1)

    def _batch(self) -> int:
        """Examples that all ranks take in a step; where nobody says, the speed is that of batches."""
        return (self.batch_size or 1) * self.ranks


def _say(text: str) -> None:
    print(text, flush=True)
