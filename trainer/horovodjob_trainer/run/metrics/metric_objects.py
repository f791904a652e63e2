"""The metric objects of a compiled model."""

from collections.abc import Iterator
from typing import Any

import keras


def metric_objects(model: Any) -> Iterator[Any]:
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
