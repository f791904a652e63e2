"""Parallel coordinates: an axis for each parameter, the last one for the result, and a line for each job. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, TOP, BOTTOM, SIDE = 960, 260, 34, 20, 70
FEWEST_LINES, FEWEST_AXES, MOST_AXES = 3, 3, 9
MOST_TEXTS = 8
LONGEST_TEXT = 14
# From the best to the worst fifth.
GRADES = 5
LOGARITHMIC_FROM = 50.0
# Beyond it, differences of values are not finite.
LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis, its title, and the texts at it."""

    title: str
    x: float
    marks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class JobLine:
    """The line of a job; grade 0 is the best fifth of the jobs."""

    name: str
    points: str
    grade: int
    text: str


@dataclass(frozen=True, slots=True)
class Axes:
    """The picture. The best line is the last, so it is drawn above the others."""

    axes: Sequence[Axis]
    lines: Sequence[JobLine]


def parallel_axes(titles: Sequence[str], jobs: Mapping[str, Sequence[Any]], *, is_lower_better: bool) -> Axes | None:
    """The picture of jobs with a value for each axis; None if it would show too little, or too much."""
    if len(jobs) < FEWEST_LINES or not FEWEST_AXES <= len(titles) <= MOST_AXES:
        return None
    xs = [SIDE + index * (WIDTH - 2 * SIDE) / (len(titles) - 1) for index in range(len(titles))]
    places = [_places([values[index] for values in jobs.values()]) for index in range(len(titles))]
    axes = [Axis(_short(title), round(x, 1), marks) for title, x, (_, marks) in zip(titles, xs, places, strict=True)]
    results = [float(values[-1]) for values in jobs.values()]
    order = sorted(range(len(results)), key=lambda index: results[index] * (1 if is_lower_better else -1))
    grades = {index: GRADES * place // len(order) for place, index in enumerate(order)}
    lines = [
        JobLine(
            name,
            " ".join(f"{x:.1f},{ys[index]:.1f}" for x, (ys, _) in zip(xs, places, strict=True)),
            grades[index],
            ", ".join(f"{title} {_text(value)}" for title, value in zip(titles, values, strict=True)),
        )
        for index, (name, values) in enumerate(jobs.items())
    ]
    return Axes(axes, [lines[index] for index in reversed(order)])


def _places(values: Sequence[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """The heights of the values, and the texts of the axis: numbers by size, and words in their order."""
    numbers = [_number(value) for value in values]
    if None in numbers:
        words = sorted({str(value) for value in values})
        heights = {word: _height(index / max(len(words) - 1, 1)) for index, word in enumerate(words)}
        shown = words if len(words) <= MOST_TEXTS else [words[0], words[-1]]
        return [heights[str(value)] for value in values], [(heights[word], _short(word)) for word in shown]
    known = [number for number in numbers if number is not None]
    low, high = min(known), max(known)
    is_logarithmic = low > 0 and high / low >= LOGARITHMIC_FROM
    scale = math.log if is_logarithmic else float
    span = scale(high) - scale(low)

    def height(number: float) -> float:
        return _height((scale(number) - scale(low)) / span if span else 0.5)

    distinct = sorted({*known})
    shown_numbers = distinct if len(distinct) <= MOST_TEXTS // 2 else [low, high]
    return [height(number) for number in known], [(height(number), _text(number)) for number in shown_numbers]


def _height(share: float) -> float:
    return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)


def finite_number(value: Any) -> float | None:
    """The value as a finite number; None if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _number(value: Any) -> float | None:
    number = finite_number(value)
    return number if number is not None and abs(number) < LARGEST else None


def _text(value: Any) -> str:
    number = _number(value)
    return _short(str(value)) if number is None else f"{number:.4g}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
