"""The picture of the learning curves: a chart of each metric by epoch, for the training and the validation."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import leather

from horovodjob_trainer.atomic_file import atomic_write
from horovodjob_trainer.reporting.metric_values import SEPARATOR

WIDTH, HEIGHT, EPOCH_TICKS = 480, 320, 8
LARGEST = 1e15  # a larger value is not drawn: of a loss that diverges, the curve would show nothing else
PARTS = {"": ("training", "#377eb8"), "val_": ("validation", "#e41a1c")}


class LearningCurves:
    """The file curves.svg beside progress.jsonl, which has the epochs of earlier attempts."""

    def __init__(self, records: Path, log: Callable[[str], None]) -> None:
        self.path, self.log, self.has_warned = records.with_name("curves.svg"), log, False
        self.epochs: dict[int, Mapping[str, float | None]] = {}
        with suppress(OSError), records.open(encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):  # a line that an attempt did not complete
                    self._add(json.loads(line))

    def write(self, record: Mapping[str, Any]) -> None:
        """Draw the curves again if the record is that of the end of an epoch."""
        try:
            if self._add(record) and (charts := self._charts()):
                with atomic_write(self.path) as path:
                    path.write_text(_svg(charts), encoding="utf-8")
        except Exception as error:  # a picture is no reason to end a run
            if not self.has_warned:
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                self.log(f"Training continues without a new {self.path}: {reason}")
            self.has_warned = True

    def _add(self, record: Mapping[str, Any]) -> bool:
        """Add the record and return whether it is that of the end of an epoch."""
        epoch, ends_epoch = int(record["epoch"]), bool(record["step"] == record["stepsPerEpoch"])
        while self.epochs and next(reversed(self.epochs)) >= epoch:  # repeated after a resume, or of an earlier run
            self.epochs.popitem()
        if ends_epoch:
            self.epochs[epoch] = record["metrics"]
        return ends_epoch

    def _charts(self) -> list[Any]:
        names = {name.removeprefix("val_") for metrics in self.epochs.values() for name in metrics}
        names = {name for name in names if SEPARATOR not in name}
        charts = [self._chart(name) for name in sorted(names, key=lambda name: (name != "loss", name))]
        return [chart for chart in charts if chart is not None]

    def _chart(self, name: str) -> Any:
        """The chart of a metric, None without a value."""
        chart, drawn = leather.Chart(name), []
        for prefix, (part, color) in PARTS.items():
            values = ((epoch, metrics.get(prefix + name)) for epoch, metrics in self.epochs.items())
            points = [(epoch, value) for epoch, value in values if value is not None and abs(value) < LARGEST]
            if len(points) == 1:
                chart.add_dots(points, name=part, fill_color=color)
            elif points:
                chart.add_line(points, name=part, stroke_color=color)
            drawn += [value for _, value in points]
        if not drawn:
            return None
        last = max(self.epochs)
        chart.add_x_scale(0, last)
        chart.add_x_axis(ticks=range(0, last + 1, math.ceil(last / EPOCH_TICKS)))
        margin = max(abs(value) for value in drawn) * 1e-3 + 1e-6  # leather finds no ticks for a domain without width
        chart.add_y_scale(min(drawn) - margin, max(drawn) + margin)
        return chart


def _svg(charts: Sequence[Any]) -> str:
    grid = leather.Grid()
    grid.add_many(charts)
    columns = math.ceil(math.sqrt(len(charts)))  # as the grid has
    svg = str(grid.to_svg(width=columns * WIDTH, height=math.ceil(len(charts) / columns) * HEIGHT))
    return svg.replace("Monaco", "monospace")  # the font of leather, which few machines have
