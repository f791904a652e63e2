"""The metric that selects the best epoch, and whether a higher value of it is better."""

from collections.abc import Iterator
from typing import Any

import keras

from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import ModelError

MINIMUM, MAXIMUM = "min", "max"
DIRECTIONS = {"up": MAXIMUM, "down": MINIMUM}  # as Keras names them


def check_monitor(model: Any, configuration: Configuration) -> None:
    """Raise ModelError if the compiled model has the metric, and neither a setting nor Keras has its direction."""
    name = configuration.monitor.removeprefix("val_")
    if any(name == each.name for each in _metrics(model)):
        monitor_mode(model, configuration)


def monitor_mode(model: Any, configuration: Configuration) -> str:
    """`min` or `max`: --monitor-mode, else the direction of the metric. Raises ModelError if it is unknown."""
    if configuration.monitor_mode != "auto":
        return configuration.monitor_mode
    name = configuration.monitor.removeprefix("val_")
    for metric in _metrics(model):
        direction = getattr(metric, "_direction", None)  # Keras uses it for EarlyStopping(mode="auto")
        if direction in DIRECTIONS and (name == metric.name or name.endswith(f"_{metric.name}")):
            return DIRECTIONS[direction]
    if name.endswith("loss"):
        return MINIMUM
    if "accuracy" in name or "auc" in name:
        return MAXIMUM
    raise ModelError(
        f"--monitor {configuration.monitor}: whether a higher value is better is not known for this metric; set "
        "--monitor-mode max or min"
    )


def _metrics(model: Any) -> Iterator[Any]:
    """The metrics of the compiled model. Before the first step, Keras has not created all of them."""
    compiled = getattr(model, "_compile_metrics", None)
    if compiled is not None and not compiled.built:
        for metric in keras.tree.flatten([compiled._user_metrics, compiled._user_weighted_metrics]):
            yield from _created(metric)
    for metric in model.metrics:
        yield from getattr(metric, "metrics", None) or (metric,)


def _created(metric: Any) -> Iterator[Any]:
    if metric is None or metric in ("accuracy", "acc", "crossentropy", "ce"):  # depend on the labels
        return
    found = keras.metrics.get(metric) if isinstance(metric, str) else metric
    if not isinstance(found, keras.metrics.Metric):
        found = keras.metrics.MeanMetricWrapper(found, name=getattr(found, "__name__", type(found).__name__))
    if isinstance(metric, str):
        found.name = metric
    yield found
