"""The values of metrics as numbers. A metric can have a vector as value, such as one number for each class."""

from collections.abc import Mapping
from typing import Any

import numpy as np

SEPARATOR = "/"  # between the name of a metric and the index of an element; TensorBoard groups by it


def mean_values(logs: Mapping[str, Any]) -> dict[str, float]:
    """A number for each metric: its value, or the mean of the elements that are numbers."""
    return {name: _mean(np.asarray(value)) for name, value in logs.items()}


def all_values(logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of `mean_values` and, as NAME/0, NAME/1, ..., the elements of vectors."""
    elements = {
        f"{name}{SEPARATOR}{index}": float(element)
        for name, value in logs.items()
        if np.ndim(value)
        for index, element in enumerate(np.asarray(value).reshape(-1))
    }
    return mean_values(logs) | elements


def without_elements(metrics: Mapping[str, float]) -> dict[str, float]:
    """The numbers of `mean_values` among those of `all_values`."""
    return {name: value for name, value in metrics.items() if not _is_element(name, metrics)}


def _is_element(name: str, metrics: Mapping[str, float]) -> bool:
    vector, _, index = name.rpartition(SEPARATOR)
    return index.isdigit() and vector in metrics


def _mean(value: Any) -> float:
    if value.ndim == 0:
        return float(value)
    numbers = value[~np.isnan(value)]  # the metric of a class without examples can be NaN
    return float(numbers.mean()) if numbers.size else float("nan")
