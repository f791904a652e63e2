"""Progress reports of rank 0: log lines, progress.jsonl, TensorBoard and the status of the job."""

import math
import os
import re
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from horovodjob_trainer.launch import Launch
from horovodjob_trainer.reporting.best_values import BestValues
from horovodjob_trainer.reporting.files import JsonLinesFile, TensorBoardFiles
from horovodjob_trainer.reporting.metric_values import without_elements
from horovodjob_trainer.reporting.progress_client import ProgressClient
from horovodjob_trainer.reporting.trackers import Tracker

# The status of a job keeps so many epochs. The operator adds those that a report has to those that it knows.
REPORTED_EPOCHS = 24
MOST_METRICS = 32  # of the status, with names of the following form
STATUS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")
LINE_METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


@dataclass(frozen=True, slots=True)
class TrainingPosition:
    """A position in a run: `step` steps into epoch number `epoch`, counted from 1; `examples` are consumed."""

    epoch: int
    epochs: int
    step: int
    steps_per_epoch: int
    examples: int
    total_examples: int
    global_step: int


class Reporter:
    """Reports the progress of a run: at most every `interval_seconds` within an epoch, and after each epoch.

    The attempt and the address of the operator are from the environment. A file that cannot be written results in a log
    line and never ends the run.
    """

    def __init__(
        self,
        *,
        directory: Path | None,
        ranks: int,
        interval_seconds: float,
        log: Callable[[str], None],
        unit: str = "images",
        tensorboard: Path | None = None,
        trackers: Sequence[Tracker] = (),
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.trackers = trackers
        self.ranks, self.interval_seconds, self.log, self.unit = ranks, interval_seconds, log, unit
        self.attempt = Launch.from_environment(environment).attempt
        self.progress_client = ProgressClient.from_environment(environment, log)
        self.lines = JsonLinesFile(directory / "progress.jsonl" if directory else None, log)
        self.events = TensorBoardFiles(tensorboard, log)
        self.rate = 0.0
        self.last_time, self.last_examples = time.monotonic(), -1
        self.last_record: dict[str, Any] | None = None
        self.epochs: deque[dict[str, Any]] = deque(maxlen=REPORTED_EPOCHS)
        self.best_values: BestValues | None = None
        self.has_logged_changes = False

    def begin(self, examples: int) -> None:
        """Start to measure the rate, which excludes compilation and validation."""
        self.last_time, self.last_examples = time.monotonic(), examples

    def pause(self, examples: int) -> None:
        """Update the rate before a validation, so that the validation is not part of it."""
        if examples > self.last_examples >= 0:
            self.rate = (examples - self.last_examples) / max(time.monotonic() - self.last_time, 1e-9)
        self.begin(examples)

    def is_due(self) -> bool:
        """Whether a report within an epoch is due."""
        return time.monotonic() - self.last_time >= self.interval_seconds

    def report(
        self,
        position: TrainingPosition,
        metrics: Mapping[str, float],
        learning_rate: float,
        best_values: BestValues | None = None,
    ) -> None:
        """Report the position, the metrics and the rate since the last report or `begin`."""
        self.best_values = best_values
        self.pause(position.examples)
        record = self._record(position, metrics, learning_rate)
        values = " ".join(f"{name} {metrics[name]:.4f}" for name in LINE_METRICS if name in metrics)
        self.log(f"Epoch {position.epoch}/{position.epochs} {position.step}/{position.steps_per_epoch} {values} "
                 f"{self.rate:.0f} {self.unit}/s")  # fmt: skip
        self.lines.write(record)
        self.events.write(
            position.global_step, {**metrics, "learning_rate": learning_rate, "images_per_second": self.rate}
        )
        rates = {"learning_rate": learning_rate, "samples_per_second": self.rate}
        for tracker in self.trackers:
            tracker.write(position.global_step, without_elements(metrics) | rates)
        if position.step == position.steps_per_epoch:
            if self.epochs and self.epochs[-1]["epoch"] == position.epoch:
                self.epochs.pop()  # A report was due at the last step of the epoch, before its validation.
            self.epochs.append(_epoch(record))
        self._post(record)
        self.last_record = record

    def close(self, *, done: bool) -> None:
        """Send the last report and close the files; `done` means that the run is complete."""
        if done and self.last_record:
            self._post(self.last_record | {"progress": 1.0, "eta": None})
        if self.progress_client:
            self.progress_client.close()
        self.lines.close()
        self.events.close()
        for tracker in self.trackers:
            tracker.close(done=done)

    def _post(self, record: Mapping[str, Any]) -> None:
        if self.progress_client:
            metrics = _status_metrics(record)
            if metrics.changes and not self.has_logged_changes:
                self.has_logged_changes = True
                self.log(f"Progress in the status of the job: {'; '.join(metrics.changes)}")
            best = self.best_values.fields() if self.best_values else {}
            self.progress_client.post(_status(record, metrics) | best | {"history": list(self.epochs)})

    def _record(self, position: TrainingPosition, metrics: Mapping[str, float], learning_rate: float) -> dict[str, Any]:
        now = datetime.now(UTC)
        remaining = (position.total_examples - position.examples) / self.rate if self.rate else None
        return {
            "time": _timestamp(now),
            "attempt": self.attempt,
            "epoch": position.epoch,
            "epochs": position.epochs,
            "step": position.step,
            "stepsPerEpoch": position.steps_per_epoch,
            "progress": round(min(position.examples / max(position.total_examples, 1), 1.0), 6),
            "loss": metrics.get("loss"),
            "metrics": dict(metrics),
            "learningRate": learning_rate,
            "samplesPerSecond": round(self.rate, 3),
            "samplesPerSecondPerRank": round(self.rate / self.ranks, 3),
            "eta": None if remaining is None else _timestamp(now + timedelta(seconds=min(max(remaining, 0), 10**8))),
        }


@dataclass(frozen=True, slots=True)
class _StatusMetrics:
    """Values by the names that the status has, metrics that are NaN or infinite, and sentences about the others."""

    values: Mapping[str, float]
    non_finite: tuple[str, ...]
    changes: tuple[str, ...]

    def fields(self) -> dict[str, Any]:
        """The fields of the report."""
        return {"metrics": self.values} | ({"nonFinite": self.non_finite} if self.non_finite else {})


def _status(record: Mapping[str, Any], metrics: _StatusMetrics) -> dict[str, Any]:
    """The part of a record that the status of a job has, with finite numbers only because JSON has no others."""
    names = ("attempt", "epoch", "epochs", "step", "stepsPerEpoch", "progress", "samplesPerSecond", "eta")
    return {name: record[name] for name in names} | metrics.fields()


def _epoch(record: Mapping[str, Any]) -> dict[str, Any]:
    """A complete epoch for the history in the status of a job."""
    rates = {name: record[name] for name in ("learningRate", "samplesPerSecond") if math.isfinite(record[name])}
    return {"epoch": record["epoch"], "time": record["time"]} | _status_metrics(record).fields() | rates


def _status_metrics(record: Mapping[str, Any]) -> _StatusMetrics:
    """The metrics of a record for the status. One that it cannot have is renamed or left out, and the others stay."""
    metrics = without_elements(record["metrics"])
    values: dict[str, float] = {}
    non_finite, changes = [], []
    # Legal names keep themselves, and where there is no room for all, losses and validation are there first.
    for name in sorted(metrics, key=lambda name: (_status_name(name) != name, _order(name))):
        stored, value = _status_name(name), metrics[name]
        if not math.isfinite(value):
            non_finite.append(stored)
        elif stored in values:
            changes.append(f"metric {name!r} is left out: it would have the name of another one, {stored}")
        elif len(values) == MOST_METRICS:
            changes.append(f"metric {name!r} is left out: the status has room for {MOST_METRICS}")
        else:
            values[stored] = value
            if stored != name:
                changes.append(f"metric {name!r} is {stored} in the status")
    ordered = {name: values[name] for name in map(_status_name, metrics) if name in values}
    return _StatusMetrics(ordered, tuple(non_finite[:MOST_METRICS]), tuple(changes))


def _status_name(name: str) -> str:
    """The name with ASCII letters, digits, `_`, `.`, `/` and `-` only, at most 63 of them, as the operator has it."""
    if STATUS_NAME.fullmatch(name):
        return name
    letters = (each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    text = "".join(f"u{ord(each):04x}" if each.isalnum() and not each.isascii() else each for each in letters)
    text = re.sub(r"[^A-Za-z0-9_./-]+", "_", text)
    text = text if text.endswith("_") and name.endswith("_") else text.rstrip("_")
    return (text if re.match(r"[A-Za-z_]", text) else f"_{text}")[:63]


def _order(name: str) -> int:
    return 0 if name in ("loss", "val_loss") else 1 if name.startswith("val_") else 2


def _timestamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
