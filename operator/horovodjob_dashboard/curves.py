"""Curves of a training: their values as a table, and as coordinates of an SVG picture. The script draws the table.

Pure: histories in the status of jobs in, charts out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovodjob.training_history import curve, metric_names, non_finite_epochs

WIDTH, HEIGHT = 480, 200
TOP, BOTTOM = 10, 24
# Of a character of the axes, and beside their texts.
CHARACTER, MARGIN = 7.1, 10
TICKS = 4
# Between these, differences and quotients of values are finite numbers.
SMALLEST, LARGEST = 1e-300, 1e300
MOST_DIGITS = 17
OTHER_CURVES = {"learningRate": "learning rate", "samplesPerSecond": "samples/s"}
VALIDATION = "val_"
Scale = tuple[float, float, float, float]
NOT_A_NUMBER = "NaN"
"""What the table has for a value that is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the picture."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Line:
    """A curve of a chart; `color` counts from 0."""

    name: str
    color: int
    values: Mapping[int, str]
    """The values by epoch, as the table has them."""
    parts: Sequence[Sequence[Point]]
    """The points between two epochs whose values are no numbers."""
    gaps: Sequence[Point]
    """Where these epochs are, at the lower end of the picture."""

    @property
    def points(self) -> list[Point]:
        """All points."""
        return [point for part in self.parts for point in part]

    @property
    def first_and_last(self) -> tuple[str, str]:
        """The first and the last value."""
        return self.values[min(self.values)], self.values[max(self.values)]


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
    left: float
    right: float
    """The ends of the picture beside the texts of the axes."""

    @property
    def epochs(self) -> list[int]:
        """The epochs of all curves."""
        return sorted({epoch for line in self.lines for epoch in line.values})


def charts_of_a_job(job: Mapping[str, Any]) -> list[Chart]:
    """A chart for each metric, with its values in training and in validation, one for the rate and one for speed."""
    names = metric_names([job])
    titles = dict.fromkeys(name.removeprefix(VALIDATION) for name in names)
    charts = []
    for title in titles:
        found = [name for name in (title, f"{VALIDATION}{title}") if name in names]
        charts.append(_chart(title, {name: _curve(job, name) for name in found}))
    charts += [_chart(title, {title: _curve(job, name)}) for name, title in OTHER_CURVES.items()]
    return [chart for chart in charts if chart is not None]


def charts_of_jobs(jobs: Mapping[str, Mapping[str, Any]]) -> list[Chart]:
    """A chart for each metric with the curves of several jobs, by the names that the legend shows."""
    charts = [
        _chart(metric, {name: _curve(job, metric) for name, job in jobs.items()})
        for metric in metric_names(jobs.values())
    ]
    return [chart for chart in charts if chart is not None]


@dataclass(frozen=True, slots=True)
class Curve:
    """Epochs with finite values, and those with others."""

    points: Sequence[tuple[int, float]]
    gaps: Sequence[int]


def _curve(job: Mapping[str, Any], metric: str) -> Curve:
    points = curve(job, metric)
    finite = [(x, min(max(y, -LARGEST), LARGEST)) for x, y in points if math.isfinite(y)]
    gaps = {x for x, y in points if not math.isfinite(y)} | {*non_finite_epochs(job, metric)}
    return Curve(finite, sorted(gaps))


def _chart(title: str, curves: Mapping[str, Curve]) -> Chart | None:
    """The chart of the curves; None without any."""
    known = {name: each for name, each in curves.items() if each.points or each.gaps}
    values = [y for each in known.values() for _, y in each.points]
    epochs = [x for each in known.values() for x in (*(x for x, _ in each.points), *each.gaps)]
    if not known:
        return None
    ys, xs = ticks(min(values), max(values)) if values else [], ticks(min(epochs), max(epochs), whole=True)
    y_texts, x_texts = tick_texts(ys), tick_texts(xs)
    left = round(max(MARGIN + CHARACTER * max(map(len, (*y_texts, ""))), CHARACTER * len(x_texts[0]) / 2), 1)
    right = round(WIDTH - max(MARGIN, CHARACTER * len(x_texts[-1]) / 2), 1)
    across, up = _scale(xs, left, right), _scale(ys or [0, 1], HEIGHT - BOTTOM, TOP)
    colors = {name: color for color, name in enumerate(curves)}
    return Chart(
        title,
        [_line(name, colors[name], each, across, up) for name, each in known.items()],
        [Tick(_at(across, x), text) for x, text in zip(xs, x_texts, strict=True)],
        [Tick(_at(up, y), text) for y, text in zip(ys, y_texts, strict=True)],
        left,
        right,
    )


def _line(name: str, color: int, curve: Curve, across: Scale, up: Scale) -> Line:
    values = {x: f"{y:.6g}" for x, y in curve.points} | dict.fromkeys(curve.gaps, NOT_A_NUMBER)
    bounds = (*curve.gaps, math.inf)
    parts = [
        [Point(_at(across, x), _at(up, y)) for x, y in curve.points if low < x < high]
        for low, high in zip((-math.inf, *curve.gaps), bounds, strict=True)
    ]
    gaps = [Point(_at(across, x), HEIGHT - BOTTOM) for x in curve.gaps]
    return Line(name, color, dict(sorted(values.items())), [part for part in parts if part], gaps)


def tick_texts(marks: Sequence[float]) -> list[str]:
    """The numbers of an axis, as short as they can be while all differ: 12.5k instead of 12500."""
    scale, unit = (1000, "k") if marks and 10_000 <= max(map(abs, marks)) < 1_000_000 else (1, "")
    for digits in range(4, MOST_DIGITS + 1):
        texts = [f"{mark / scale:.{digits}g}" for mark in marks]
        if len(set(texts)) == len(texts):
            break
    return [text if float(text) == 0 else f"{text}{unit}" for text in texts] if marks else []


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


def _scale(marks: Sequence[float], begin: float, end: float) -> Scale:
    return marks[0], marks[-1], begin, end


def _at(scale: Scale, value: float) -> float:
    low, high, begin, end = scale
    return round(begin + (value - low) / (high - low) * (end - begin), 1)
