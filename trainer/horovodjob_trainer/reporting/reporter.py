"""How far a run is, told by rank 0: lines, progress.jsonl, TensorBoard, the job's status."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tensorflow as tf

from horovodjob_trainer.reporting.progress_client import Poster

LINE_METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


@dataclass(frozen=True, slots=True)
class Place:
    """A point in a run: `step` steps into epoch number `epoch`, counted from 1; `position` of `total` examples."""

    epoch: int
    epochs: int
    step: int
    steps_per_epoch: int
    position: int
    total: int
    global_step: int


class Reporter:
    """Turns points of a run into reports, at most one each `seconds` inside an epoch, and one after each epoch.

    Files that cannot be written cost a sentence, never the run.
    """

    def __init__(
        self,
        *,
        logs: Path,
        tensorboard: Path | None,
        attempt: int,
        ranks: int,
        seconds: float,
        poster: Poster | None,
        say: Callable[[str], None],
    ) -> None:
        self.attempt, self.ranks, self.seconds, self.poster, self.say = attempt, ranks, seconds, poster, say
        self.lines = _Lines(logs / "progress.jsonl", say)
        self.events = _Events(tensorboard, say)
        self.rate = 0.0
        self.last_time, self.last_position = time.monotonic(), -1
        self.last: dict[str, Any] | None = None

    def begin(self, position: int) -> None:
        """Counts the rate from here: compilation and validation are no part of it."""
        self.last_time, self.last_position = time.monotonic(), position

    def pause(self, position: int) -> None:
        """Ends the time that the rate counts, so that a validation is no part of it."""
        if position > self.last_position >= 0:
            self.rate = (position - self.last_position) / max(time.monotonic() - self.last_time, 1e-9)
        self.begin(position)

    def due(self) -> bool:
        """Whether it is time for a report inside an epoch."""
        return time.monotonic() - self.last_time >= self.seconds

    def report(self, place: Place, metrics: Mapping[str, float], learning_rate: float) -> None:
        """Tells the point, the metrics and the rate since the last report or `begin`."""
        self.pause(place.position)
        record = self._record(place, metrics, learning_rate)
        shown = " ".join(f"{name} {metrics[name]:.4f}" for name in LINE_METRICS if name in metrics)
        self.say(f"Epoch {place.epoch}/{place.epochs} {place.step}/{place.steps_per_epoch} {shown} "
                 f"{self.rate:.0f} images/s")  # fmt: skip
        self.lines.write(record)
        self.events.write(
            place.global_step, {**metrics, "learning_rate": learning_rate, "images_per_second": self.rate}
        )
        if self.poster:
            self.poster.post(_for_status(record))
        self.last = record

    def close(self, *, done: bool) -> None:
        """Sends what is still to be sent; `done` when nothing of the run is left."""
        if self.poster:
            if done and self.last:
                self.poster.post(_for_status(self.last | {"progress": 1.0, "eta": None}))
            self.poster.close()
        self.lines.close()
        self.events.close()

    def _record(self, place: Place, metrics: Mapping[str, float], learning_rate: float) -> dict[str, Any]:
        now = datetime.now(UTC)
        left = (place.total - place.position) / self.rate if self.rate else None
        return {
            "time": _stamp(now),
            "attempt": self.attempt,
            "epoch": place.epoch,
            "epochs": place.epochs,
            "step": place.step,
            "stepsPerEpoch": place.steps_per_epoch,
            "progress": round(min(place.position / max(place.total, 1), 1.0), 6),
            "loss": metrics.get("loss"),
            "metrics": dict(metrics),
            "learningRate": learning_rate,
            "samplesPerSecond": round(self.rate, 3),
            "samplesPerSecondPerRank": round(self.rate / self.ranks, 3),
            "eta": None if left is None else _stamp(now + timedelta(seconds=min(max(left, 0), 10**8))),
        }


def _for_status(record: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that a job's status has, with finite numbers only: JSON knows no others."""
    names = ("attempt", "epoch", "epochs", "step", "stepsPerEpoch", "progress", "samplesPerSecond", "eta")
    metrics = {name: value for name, value in record["metrics"].items() if math.isfinite(value)}
    return {name: record[name] for name in names} | {"metrics": metrics}


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class _Lines:
    """A file that gets one JSON object in a line; a new attempt goes on where the one before ended."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path, self.say, self.file = path, say, None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            self._give_up(error)

    def write(self, record: Mapping[str, Any]) -> None:
        if self.file is None:
            return
        try:
            self.file.write(json.dumps(_plain(record)) + "\n")
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        if self.file is not None:
            try:
                self.file.close()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.file = None
        self.say(f"Training goes on without {self.path}: {error.strerror or error}")


def _plain(value: Any) -> Any:
    """The value with null in the place of numbers that JSON lacks."""
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Events:
    """TensorBoard's event files."""

    def __init__(self, directory: Path | None, say: Callable[[str], None]) -> None:
        self.directory, self.say = directory, say
        self.writer: Any = None
        if directory is not None:
            self._guarded(lambda: setattr(self, "writer", tf.summary.create_file_writer(str(directory))))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self.writer is not None:
            self._guarded(lambda: self._scalars(step, values))

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        with tf.device("CPU"), self.writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(name, value, step=step)
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self._guarded(lambda: self.writer.close())

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (tf.errors.OpError, OSError) as error:
            self.writer = None
            reason = " ".join(str(error).split())
            self.say(f"Training goes on without TensorBoard files in {self.directory}: {reason[:200]}")
