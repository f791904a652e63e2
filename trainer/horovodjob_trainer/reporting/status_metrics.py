"""The metrics that the status of a job can have: with legal names, finite, and not more than it holds."""

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

MOST_METRICS = 32
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")


@dataclass(frozen=True, slots=True)
class StatusMetrics:
    """Values by the names that the status has, metrics that are NaN or infinite, and sentences about the others."""

    values: Mapping[str, float]
    non_finite: tuple[str, ...]
    changes: tuple[str, ...]


def status_metrics(metrics: Mapping[str, float]) -> StatusMetrics:
    """The metrics for the status. One that it cannot have is renamed or left out, and the others stay."""
    values: dict[str, float] = {}
    non_finite, changes = [], []
    # Legal names keep themselves, and where there is no room for all, losses and validation are there first.
    for name in sorted(metrics, key=lambda name: (status_name(name) != name, _order(name))):
        stored, value = status_name(name), metrics[name]
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
    ordered = {name: values[name] for name in map(status_name, metrics) if name in values}
    return StatusMetrics(ordered, tuple(non_finite[:MOST_METRICS]), tuple(changes))


def status_name(name: str) -> str:
    """The name with ASCII letters, digits, `_`, `.`, `/` and `-` only, at most 63 of them, as the operator has it."""
    if NAME.fullmatch(name):
        return name
    letters = (each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    text = "".join(f"u{ord(each):04x}" if each.isalnum() and not each.isascii() else each for each in letters)
    text = re.sub(r"[^A-Za-z0-9_./-]+", "_", text)
    text = text if text.endswith("_") and name.endswith("_") else text.rstrip("_")
    return (text if re.match(r"[A-Za-z_]", text) else f"_{text}")[:63]


def _order(name: str) -> int:
    return 0 if name in ("loss", "val_loss") else 1 if name.startswith("val_") else 2
