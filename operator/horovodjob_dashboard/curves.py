"""Curves of a training as coordinates of an SVG picture, which the templates draw.

Pure: histories in the status of jobs in, charts out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovodjob.training_history import curve, metric_names

WIDTH, HEIGHT = 480, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24
TICKS = 4
# Between these, differences and quotients of values are finite numbers.
SMALLEST, LARGEST = 1e-300, 1e300
OTHER_CURVES = {"learningRate": "learning rate", "samplesPerSecond": "samples/s"}
VALIDATION = "val_"


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the picture, with its epoch and value as text."""

    x: float
    y: float
    epoch: int
    value: str


@dataclass(frozen=True, slots=True)
class Line:
    """A curve of a chart; `color` counts from 0."""

    name: str
    color: int
    points: list[Point]

    @property
    def path(self) -> str:
        """The points as the attribute of a polyline."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark at an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over epochs with one scale."""

    title: str
    lines: list[Line]
    xs: list[Tick]
    ys: list[Tick]


def charts_of_a_job(job: Mapping[str, Any]) -> list[Chart]:
    """A chart for each metric, with its values in training and in validation, one for the rate and one for speed."""
    names = metric_names([job])
    titles = dict.fromkeys(name.removeprefix(VALIDATION) for name in names)
    charts = []
    for title in titles:
        found = [name for name in (title, f"{VALIDATION}{title}") if name in names]
        charts.append(_chart(title, {name: curve(job, name) for name in found}))
    charts += [_chart(title, {title: curve(job, name)}) for name, title in OTHER_CURVES.items()]
    return [chart for chart in charts if chart is not None]


def charts_of_jobs(jobs: Mapping[str, Mapping[str, Any]]) -> list[Chart]:
    """A chart for each metric with the curves of several jobs, by the names that the legend shows."""
    charts = []
    for metric in metric_names(jobs.values()):
        charts.append(_chart(metric, {name: curve(job, metric) for name, job in jobs.items()}))
    return [chart for chart in charts if chart is not None]


def _chart(title: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> Chart | None:
    """The chart of the curves, whose values that are not finite are left out; None without a value."""
    finite = {
        name: [(x, min(max(y, -LARGEST), LARGEST)) for x, y in points if math.isfinite(y)]
        for name, points in curves.items()
    }
    values = [y for points in finite.values() for _, y in points]
    epochs = [x for points in finite.values() for x, _ in points]
    if not values:
        return None
    ys, xs = ticks(min(values), max(values)), ticks(min(epochs), max(epochs), whole=True)
    across, up = _scale(xs, LEFT, WIDTH - RIGHT), _scale(ys, HEIGHT - BOTTOM, TOP)
    lines = [
        Line(name, color, [Point(_at(across, x), _at(up, y), x, f"{y:.5g}") for x, y in points])
        for color, (name, points) in enumerate(finite.items())
    ]
    return Chart(
        title,
        [line for line in lines if line.points],
        [Tick(_at(across, x), f"{x:g}") for x in xs],
        [Tick(_at(up, y), _short(y)) for y in ys],
    )


def _short(value: float) -> str:
    """A number of the axis in the few characters that it has room for: 12.5k instead of 12500."""
    return f"{value / 1000:.4g}k" if 10_000 <= abs(value) < 1_000_000 else f"{value:.4g}"


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round numbers from at most `low` to at least `high`, in steps of 1, 2 or 5 times a power of ten."""
    largest = max(abs(low), abs(high))
    # Values that differ by rounding errors only get the scale of their size.
    span = max(high - low if high - low > 1e-9 * largest else largest or 1.0, SMALLEST)
    raw = span / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    step = max(round(step), 1) if whole else step
    first = math.floor(low / step + 1e-9)
    count = max(math.ceil(high / step - 1e-9) - first, 1)
    return [(first + index) * step for index in range(count + 1)]


Scale = tuple[float, float, float, float]


def _scale(marks: Sequence[float], begin: float, end: float) -> Scale:
    return marks[0], marks[-1], begin, end


def _at(scale: Scale, value: float) -> float:
    low, high, begin, end = scale
    return round(begin + (value - low) / (high - low) * (end - begin), 1)
