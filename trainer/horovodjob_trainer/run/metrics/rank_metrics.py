"""Metrics over the examples of all ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from horovodjob_trainer import hvd
from horovodjob_trainer.reporting.metric_values import SEPARATOR, all_values


def metrics_over_ranks(model: Any, logs: Mapping[str, Any], weight: float) -> dict[str, float]:
    """The metrics over the examples of all ranks, also the elements of vectors. Every rank must call it.

    A metric of Keras that is computed from counts, such as recall and AUC, is that of the sums of the counts: the
    average of two recalls is not the recall of both. Others are averages with the weight of each rank. A rank without
    examples takes part with the weight 0.
    """
    values, counting = all_values(logs), list(_counting_metrics(model))
    own_shapes = [[tuple(each.shape) for each in metric.variables] for metric in counting]
    gathered = hvd.allgather_object((list(values), own_shapes))
    names, shapes = max(gathered, key=lambda entry: len(entry[0]))  # a rank without examples has no metrics
    metrics = _averages(names, values, weight)
    if not shapes:
        return metrics
    sums = [
        [_sum(counting[at].variables[index] if weight else np.zeros(shape), shape) for index, shape in enumerate(part)]
        for at, part in enumerate(shapes)
    ]
    if hvd.rank() == 0:
        exact = all_values(_results(model, counting, sums))
        metrics |= {name: exact[name] for name in names if name in exact and _belongs_to(name, counting)}
    broadcast: dict[str, float] = hvd.broadcast_object(metrics, root_rank=0)
    return broadcast


def _averages(names: list[str], values: Mapping[str, float], weight: float) -> dict[str, float]:
    own = [values.get(name, 0.0) * weight for name in names]
    totals = hvd.allreduce(np.array([*own, weight], np.float64), op=hvd.Sum, name="metrics").numpy()
    return {name: float(total / totals[-1]) for name, total in zip(names, totals[:-1], strict=True)}


def _sum(value: Any, shape: tuple[int, ...]) -> Any:
    counts = np.asarray(value, np.float64).reshape(shape)
    return np.asarray(hvd.allreduce(counts, op=hvd.Sum, name="metric_counts")).reshape(shape)


def _results(model: Any, metrics: list[Any], states: list[Any]) -> dict[str, Any]:
    """The results with other states of these metrics, which then have their own states again."""
    variables = [variable for metric in metrics for variable in metric.variables]
    pairs = list(zip(variables, [value for values in states for value in values], strict=True))
    own = [np.array(variable) for variable, _ in pairs]
    for variable, value in pairs:
        variable.assign(value)
    results: dict[str, Any] = model.get_metrics_result()
    for (variable, _), value in zip(pairs, own, strict=True):
        variable.assign(value)
    return results


def _belongs_to(name: str, metrics: list[Any]) -> bool:
    name = name.partition(SEPARATOR)[0]
    return any(name == metric.name or name.endswith(f"_{metric.name}") for metric in metrics)  # after that of an output


def _counting_metrics(model: Any) -> Iterator[Any]:
    """The metrics of Keras that are more than a mean. The state of each is a sum over the examples."""
    for metric in model.metrics:
        for each in getattr(metric, "metrics", None) or (metric,):
            is_mean = isinstance(each, keras.metrics.Mean) and not isinstance(each, keras.metrics.RootMeanSquaredError)
            if type(each).__module__.startswith("keras.") and not is_mean:
                yield each
