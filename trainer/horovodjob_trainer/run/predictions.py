"""Predictions as text: one line for each example."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.atomic_file import whole
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.errors import OutputError

FORMATS = ("csv", "jsonl")


def lines(source: Source, outputs: npt.NDArray[Any], chosen: str, *, of_classes: bool) -> Iterator[str]:
    """A line for each example: its file or number and the likeliest class, or the model's own numbers.

    `outputs` has one row for each example: probabilities or logits if they are of classes, else given as they are.
    """
    rows = _classes(source, outputs) if of_classes else _values(source, outputs)
    for number, row in enumerate(rows):
        if chosen == "jsonl":
            yield json.dumps(row)
        else:
            if not number:
                yield ",".join(row)
            yield _csv(json.dumps(value) if isinstance(value, list) else value for value in row.values())


def written(content: Iterable[str], path: Path | None) -> None:
    """Writes lines to the file, whole or not at all, or to stdout. Raises OutputError."""
    if path is None:
        for line in content:
            print(line)
        sys.stdout.flush()
        return
    try:
        with whole(path) as partial:
            with partial.open("w") as file:
                file.writelines(f"{line}\n" for line in content)
            partial.chmod(0o644)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}; give another --output") from error


def _classes(source: Source, outputs: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    probabilities = _probabilities(outputs)
    names = source.class_names
    for row, likeliest in enumerate(probabilities.argmax(axis=1)):
        label = int(likeliest)
        shown: str | int = names[label] if names and label < len(names) else label
        yield {"file": source.name(row), "class": shown, "probability": round(float(probabilities[row, label]), 6)}


def _values(source: Source, outputs: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    for row, values in enumerate(outputs.tolist()):
        single = isinstance(values, list) and len(values) == 1
        yield {"file": source.name(row), "output": values[0] if single else values}


def _probabilities(outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if outputs.min() >= 0 and np.allclose(outputs.sum(axis=1), 1, atol=1e-3):
        return outputs
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _csv(values: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
