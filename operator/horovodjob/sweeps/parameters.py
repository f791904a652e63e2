"""A parameter of a sweep, and its notation in a file and on a command line."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Value = bool | int | float | str
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
NOTATION = "write float:LOW:HIGH, log:LOW:HIGH, int:LOW:HIGH, logint:LOW:HIGH, or values such as 32,64"
MOST_CHOICES = 1000
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# A value in quotes, or one without quotes and brackets; then a comma or the end.
ITEM = re.compile(r"\s*('[^']*'|\"[^\"]*\"|[^'\",()\[\]{}]*)\s*(,|$)")
# What people write between values, or in a range, of another notation.
DOUBTFUL = re.compile(r"\S[\s;|]+\S|\.\.")
# Text that is the shortest of its number: programs get 007 and -0 as they are written.
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
BRACKETS = ("[]", "()")


class Scale(StrEnum):
    """Ranges of numbers; the two logarithmic ones need a positive lower bound."""

    FLOAT = "float"
    LOG = "log"
    INT = "int"
    LOG_INT = "logint"

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole."""
        return self in (Scale.INT, Scale.LOG_INT)

    @property
    def is_logarithmic(self) -> bool:
        """Whether each power of ten is as likely as another."""
        return self in (Scale.LOG, Scale.LOG_INT)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both inclusive; with `step`, only low, low + step and so on."""

    scale: Scale
    low: float
    high: float
    step: float | None = None

    @property
    def size(self) -> float:
        """How many values it has."""
        if self.step is None and not self.scale.is_whole:
            return math.inf
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    @property
    def example(self) -> Value:
        """One of its values."""
        return int(self.low) if self.scale.is_whole else self.low


@dataclass(frozen=True, slots=True)
class Choices:
    """Some values."""

    values: tuple[Value, ...]

    @property
    def size(self) -> float:
        """How many values it has."""
        return len(self.values)

    @property
    def example(self) -> Value:
        """One of its values."""
        return self.values[0]


Parameter = Range | Choices


def parse(value: Any) -> Parameter:
    """The parameter of `log:1e-4:1e-1`, `32, 64`, `[adam, sgd]` or a list of values. Raises ValueError."""
    if isinstance(value, list):
        return _choices(value)
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}, which is neither a range nor values: {NOTATION}")
    scale, colon, bounds = value.strip().partition(":")
    if colon and scale.strip().lower() in set(Scale):
        return _range(Scale(scale.strip().lower()), [bound.strip() for bound in bounds.split(":")])
    items = _items(value)
    if colon and len(items) == 1 and QUOTED.fullmatch(value.strip()) is None:
        raise ValueError(f"has no range {value!r}: {NOTATION}")
    return _choices([int(each) if WHOLE.fullmatch(each) else each for each in items])


def _items(value: str) -> list[str]:
    """The values of `a, b`, of `[a, b]` and of `"a, b", c`, without blanks and quotes around them."""
    inner = value.strip()
    if inner[:1] + inner[-1:] in BRACKETS and len(inner) > 1:
        inner = inner[1:-1]
    items: list[str] = []
    position = 0
    while match := ITEM.match(inner, position):
        items.append(match[1][1:-1] if QUOTED.fullmatch(match[1]) else match[1].strip())
        position = match.end()
        if not match[2]:
            if len(items) == 1 and DOUBTFUL.search(items[0]) and not QUOTED.fullmatch(match[1]):
                raise ValueError(f"has the one value {value!r}: write commas between values, or put it into quotes")
            return items
    raise ValueError(f"has {value!r}, where {inner[position:].strip()!r} is not understood: {NOTATION}")


def text(value: Value) -> str:
    """The value as programs take it: true and false, and the shortest text of a number."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _range(scale: Scale, bounds: Sequence[str]) -> Range:
    if len(bounds) not in (2, 3):
        raise ValueError(f"must be {scale}:LOW:HIGH, or {scale}:LOW:HIGH:STEP")
    low, high, *steps = (_number(scale, bound) for bound in bounds)
    if low >= high:
        raise ValueError(f"has the empty range {bounds[0]} to {bounds[1]}: the lower bound must be below the upper")
    if scale.is_logarithmic and low <= 0:
        raise ValueError(f"begins at {bounds[0]}, which has no logarithm: begin above 0, or use {_linear(scale)}")
    if steps and scale.is_logarithmic:
        raise ValueError(f"has a step, which a range of {scale} cannot have: use {_linear(scale)}")
    if steps and not 0 < steps[0] <= high - low:
        raise ValueError(f"has the step {bounds[2]}: it must be above 0 and at most the width of the range")
    return Range(scale, low, high, *steps)


def _linear(scale: Scale) -> Scale:
    return Scale.INT if scale.is_whole else Scale.FLOAT


def _number(scale: Scale, bound: str) -> float:
    try:
        number = int(bound) if scale.is_whole else float(bound)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or abs(number) > 1e15:
        raise ValueError(f"has the bound {bound!r}, which is not a {'whole ' if scale.is_whole else ''}number")
    return number


def _choices(values: Sequence[Any]) -> Choices:
    if not 0 < len(values) <= MOST_CHOICES:
        raise ValueError(f"has {len(values)} values: it must have from 1 to {MOST_CHOICES}")
    for value in values:
        if not isinstance(value, bool | int | float | str) or value == "":
            raise ValueError(f"has the value {value!r}: a value is a number, text, true or false")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"has the value {value}, which is not finite")
    texts = [text(value) for value in values]
    if repeated := sorted({each for each in texts if texts.count(each) > 1}):
        raise ValueError(f"has {', '.join(repeated)} twice: name each value once")
    return Choices(tuple(values))
