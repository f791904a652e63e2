"""The lowest and the highest value of each metric in a run, and which of both a program declares to be the best."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from horovodjob_trainer.reporting.metric_values import without_elements

MODES = ("min", "max")
DIRECTIONS = {"up": "max", "down": "min"}  # as Keras names them
VALIDATION = "val_"
LOSS = "loss"

Ends = dict[str, list[float]]
"""By metric: the lowest value, its epoch, the highest value, its epoch."""


def record_ends(ends: Ends, epoch: int, metrics: Mapping[str, float]) -> None:
    """Add the values after an epoch. Of equal values the first epoch stays, and NaN is neither low nor high."""
    for name, value in without_elements(metrics).items():
        if math.isfinite(value):
            low, low_epoch, high, high_epoch = ends.get(name, (math.inf, 0, -math.inf, 0))
            lowest = (value, epoch) if value < low else (low, low_epoch)
            highest = (value, epoch) if value > high else (high, high_epoch)
            ends[name] = [*lowest, *highest]


@dataclass(frozen=True, slots=True)
class BestValues:
    """What a progress report says of the best values: their metric, the modes of metrics, the ends of their values."""

    monitor: str | None
    modes: Mapping[str, str]
    ends: Ends

    def fields(self) -> dict[str, Any]:
        """The fields of the report."""
        extremes = {
            name: {"min": {"value": low, "epoch": int(first)}, "max": {"value": high, "epoch": int(second)}}
            for name, (low, first, high, second) in self.ends.items()
        }
        found = {"monitor": self.monitor, "modes": dict(self.modes), "extremes": extremes}
        return {name: value for name, value in found.items() if value}


def declared_modes(names: Iterable[str], metrics: Iterable[Any], callbacks: Iterable[Any] = ()) -> dict[str, str]:
    """`min` or `max` for each named metric of which a metric object or a callback of Keras declares it.

    The loss is minimized. Nothing follows from other names.
    """
    metrics, callbacks = tuple(metrics), tuple(callbacks)
    modes = {}
    for name in names:
        plain = name.removeprefix(VALIDATION)
        mode = "min" if plain == LOSS else metric_mode(plain, metrics) or _callback_mode(name, callbacks)
        if mode is not None:
            modes[name] = mode
    return modes


def metric_objects(model: Any) -> Iterator[Any]:
    """The metrics of the compiled model. Before the first step, Keras has not created all of them."""
    compiled = getattr(model, "_compile_metrics", None)
    if compiled is not None and not compiled.built:
        for metric in keras.tree.flatten([compiled._user_metrics, compiled._user_weighted_metrics]):
            yield from _created_metrics(metric)
    for metric in model.metrics:
        yield from getattr(metric, "metrics", None) or (metric,)


def check_mode(monitor: str | None, mode: str | None) -> None:
    """Raise ValueError for a mode that is no mode, or that belongs to no metric."""
    if mode is not None and mode not in MODES:
        raise ValueError(f'mode must be "min" or "max", not {mode!r}')
    if mode is not None and monitor is None:
        raise ValueError(f'mode="{mode}" needs the metric: monitor="val_..."')


def own_mode(monitor: str | None, mode: str | None) -> dict[str, str]:
    """The mode that a script declares for the metric that it selects by."""
    return {} if monitor is None or mode is None else {monitor: mode}


def metric_mode(name: str, metrics: Iterable[Any]) -> str | None:
    """The mode of the metric object with this name, or of an output's metric such as `mask_accuracy`; else None.

    Keras uses it for EarlyStopping(mode="auto").
    """
    same = [metric for metric in metrics if metric.name == name]
    found = same or [metric for metric in metrics if name.endswith(f"_{metric.name}")]
    return next((DIRECTIONS[each] for each in map(_direction, found) if each in DIRECTIONS), None)


def _direction(metric: Any) -> Any:
    return getattr(metric, "_direction", None)


def _callback_mode(name: str, callbacks: Iterable[Any]) -> str | None:
    """The mode of EarlyStopping and ReduceLROnPlateau, unless they guess it from the name of the metric."""
    modes = (getattr(each, "mode", None) for each in callbacks if getattr(each, "monitor", None) == name)
    return next((mode for mode in modes if mode in MODES), None)


def _created_metrics(metric: Any) -> Iterator[Any]:
    if metric is None or metric in ("accuracy", "acc", "crossentropy", "ce"):  # depend on the labels
        return
    found = keras.metrics.get(metric) if isinstance(metric, str) else metric
    if not isinstance(found, keras.metrics.Metric):
        found = keras.metrics.MeanMetricWrapper(found, name=getattr(found, "__name__", type(found).__name__))
    if isinstance(metric, str):
        found.name = metric
    yield found
