"""Predictions as lines of JSON, one for each example."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.atomic_file import atomic_write
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.errors import OutputError


def prediction_lines(source: Source, outputs: npt.NDArray[Any], *, of_classes: bool) -> Iterator[str]:
    """A line of JSON for each example: its file or number and the most likely class, or the outputs of the model.

    `outputs` has one row for each example. With `of_classes`, a row contains probabilities or logits.
    """
    return map(json.dumps, _class_rows(source, outputs) if of_classes else _value_rows(source, outputs))


def write_lines(lines: Iterable[str], path: Path | None) -> None:
    """Write lines atomically to the file, or to stdout. Raises OutputError."""
    if path is None:
        for line in lines:
            print(line)
        sys.stdout.flush()
        return
    try:
        with atomic_write(path) as partial:
            with partial.open("w") as file:
                file.writelines(f"{line}\n" for line in lines)
            partial.chmod(0o644)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}; use another --output") from error


def _class_rows(source: Source, outputs: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    probabilities = _probabilities(outputs)
    names = source.class_names
    for row, predicted in enumerate(probabilities.argmax(axis=1)):
        label = int(predicted)
        shown_class: str | int = names[label] if names and label < len(names) else label
        yield {
            "file": source.name(row),
            "class": shown_class,
            "probability": round(float(probabilities[row, label]), 6),
        }


def _value_rows(source: Source, outputs: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    for row, values in enumerate(outputs.tolist()):
        is_single = isinstance(values, list) and len(values) == 1
        yield {"file": source.name(row), "output": values[0] if is_single else values}


def _probabilities(outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if outputs.min() >= 0 and np.allclose(outputs.sum(axis=1), 1, atol=1e-3):
        return outputs
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
