"""Parsers of texts from the command line, the environment or a file. They raise ValueError with a message."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from horovodjob_trainer.data import ANY_SHA256
from horovodjob_trainer.models import channel_statistics

MOST_PROFILED_STEPS = 1000
FUNCTION_METAVAR = "package.module:function"
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", text):
        raise ValueError(f"'{text}' is not a name; a name consists of letters, digits, '_', '-' and '.'")
    return text


class _Boolean(click.types.BoolParamType):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        is_true = None if value == "" else self.str_to_bool(value)  # an empty text is false for click
        if is_true is None:
            self.fail(f"'{value}' is neither true nor false", param, ctx)
        return is_true


boolean = _Boolean()


class _Choice(click.Choice[str]):
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"'{value}' is none of {', '.join(self.choices)}"


class _ChoiceOrFunction(_Choice):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value if FUNCTION.fullmatch(value) else super().convert(value, param, ctx)


def path(text: str) -> Path:
    if not text:
        raise ValueError("the path is empty")
    return Path(text)


def path_or_none(text: str) -> Path | None:
    return None if text == "none" else path(text)


def integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not minimum <= int(text) <= maximum:
            raise ValueError(f"'{text}' is not a whole number from {minimum} to {maximum}")
        return int(text)

    return parse


def number(minimum: float, maximum: float = math.inf, *, exclusive: bool = False) -> Callable[[str], float]:
    bounds = f"{'above' if exclusive else 'from'} {minimum:g}" + (f" to {maximum:g}" if math.isfinite(maximum) else "")

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not minimum <= value <= maximum or (exclusive and value == minimum):
            raise ValueError(f"'{text}' is not a number {bounds}")
        return value

    return parse


def increasing_numbers(text: str) -> tuple[float, ...]:
    """Numbers above 0 in increasing order, separated by commas."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    is_increasing = all(before < after for before, after in zip((0.0, *numbers), numbers, strict=False))
    if not numbers or not is_increasing or not math.isfinite(numbers[-1]):
        raise ValueError(f"'{text}' is not a list of increasing numbers such as 30,60,80")
    return numbers


def normalization(text: str) -> str:
    """The text of `channel_statistics`."""
    channel_statistics(text)
    return text


def patterns(text: str) -> tuple[str, ...]:
    """Patterns of names, separated by commas."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ValueError(f"'{text}' is not a list of names such as conv1,block2_*")
    return parts


def choice(*names: str) -> click.ParamType[str]:
    return _Choice(names)


def choice_or_function(*names: str) -> click.ParamType[str]:
    """One of the names, or the import string of a function: `package.module:function`."""
    return _ChoiceOrFunction((*names, FUNCTION_METAVAR))


def function(text: str) -> str:
    """The import string of a function."""
    if not FUNCTION.fullmatch(text):
        raise ValueError(f"'{text}' does not have the form {FUNCTION_METAVAR}")
    return text


def data_function(dataset: str | None, data: Path | None) -> str | None:
    """The import string if --data names a function and no --dataset is given."""
    if dataset is None and data is not None and FUNCTION.fullmatch(str(data)) and not data.exists():
        return str(data)
    return None


def step_range(text: str) -> tuple[int, int]:
    """The first and the last of some steps, at most MOST_PROFILED_STEPS, because a profile is kept in memory."""
    match = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(f"'{text}' is not a range of steps such as 100:110, the first and the last, counted from 1")
    if last - first >= MOST_PROFILED_STEPS:
        raise ValueError(f"'{text}' has {last - first + 1} steps; a profile can have {MOST_PROFILED_STEPS}")
    return first, last


def target(text: str) -> str:
    """The name of an experiment or project, neither an address nor a key."""
    if not re.fullmatch(r"[\w/][\w ./@-]{0,127}", text) or "//" in text:
        raise ValueError(f"'{text}' is not the name of an experiment or project; addresses and keys belong into "
                         "environment variables")  # fmt: skip
    return text


def url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+/\S*", text):
        raise ValueError(f"'{text}' is not the http or https URL of a file")
    return text


def sha256(text: str) -> str:
    if text != ANY_SHA256 and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError(f"'{text}' is neither 64 hexadecimal digits nor '{ANY_SHA256}'")
    return text.lower()


def command_line_text(value: Any) -> str:
    """A value of a YAML file in the form that the command line has."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
        return ":".join(map(str, value))
    if isinstance(value, list | tuple):
        return ",".join(command_line_text(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)
