"""Metrics over the examples of all ranks."""

from collections.abc import Mapping
from typing import Any

from horovodjob_trainer.hvd.metric_reduction import MetricStates, reduce_metrics
from horovodjob_trainer.reporting.metric_values import all_values


def metrics_over_ranks(model: Any, logs: Mapping[str, Any], weight: float) -> dict[str, float]:
    """The metrics over the examples of all ranks, also the elements of vectors. Every rank must call it.

    A rank without examples takes part with the weight 0.
    """
    states = MetricStates.of(model) if weight else MetricStates()
    return all_values(reduce_metrics(model, logs, states, weight))
