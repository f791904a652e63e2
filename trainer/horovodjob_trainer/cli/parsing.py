"""Texts from the command line, the environment or a file, turned into values; ValueError says what is wrong."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horovodjob_trainer.data import ANY_SHA256

BOOLEANS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False,
                       "0": False}  # fmt: skip
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def word(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", text):
        raise ValueError(f"'{text}' is no name: letters, digits, '_', '-' and '.' make one")
    return text


def boolean(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise ValueError(f"'{text}' is neither true nor false")
    return BOOLEANS[text.lower()]


def path(text: str) -> Path:
    if not text:
        raise ValueError("the path is empty")
    return Path(text)


def path_or_none(text: str) -> Path | None:
    return None if text == "none" else path(text)


def integer(least: int, most: int) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise ValueError(f"'{text}' is not a whole number from {least} to {most}")
        return int(text)

    return parsed


def real(least: float, most: float = math.inf, *, above: bool = False) -> Callable[[str], float]:
    bounds = f"{'above' if above else 'from'} {least:g}" + (f" to {most:g}" if math.isfinite(most) else "")

    def parsed(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not least <= value <= most or (above and value == least):
            raise ValueError(f"'{text}' is not a number {bounds}")
        return value

    return parsed


def rising_numbers(text: str) -> tuple[float, ...]:
    """Numbers above 0, each greater than the one before, separated by commas."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    rising = all(before < after for before, after in zip((0.0, *numbers), numbers, strict=False))
    if not numbers or not rising or not math.isfinite(numbers[-1]):
        raise ValueError(f"'{text}' is no list of rising numbers such as 30,60,80")
    return numbers


def choice(*names: str) -> Callable[[str], str]:
    def parsed(text: str) -> str:
        if text not in names:
            raise ValueError(f"'{text}' is none of {', '.join(names)}")
        return text

    return parsed


def choice_or_function(*names: str) -> Callable[[str], str]:
    """One of the names, or somebody's own function as `package.module:function`."""

    def parsed(text: str) -> str:
        if text not in names and not FUNCTION.fullmatch(text):
            raise ValueError(f"'{text}' is none of {', '.join(names)} and no package.module:function")
        return text

    return parsed


def url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+/\S*", text):
        raise ValueError(f"'{text}' is not an http or https address of a file")
    return text


def sha256(text: str) -> str:
    if text != ANY_SHA256 and not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError(f"'{text}' is neither 64 hexadecimal digits nor '{ANY_SHA256}'")
    return text.lower()


def text_of(value: Any) -> str:
    """A value of a YAML file as it would be written on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(text_of(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)
