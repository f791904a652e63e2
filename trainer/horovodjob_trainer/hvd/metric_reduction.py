"""Metrics over the examples of all ranks, which do not depend on the number of ranks."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.process_sets import UNSCOPED

SUM_ATTRIBUTE = "state_is_sum"  # of a metric of the user
AVERAGED = object()
_reported: set[str] = set()


@dataclass(frozen=True, slots=True)
class MetricStates:
    """The states of the metrics of a model whose states are sums over the examples, and the results of all metrics."""

    states: list[list[Any]] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Any) -> "MetricStates":
        """The current states, which the next evaluation or epoch resets."""
        states = [[np.array(variable, np.float64) for variable in metric.variables] for metric in _summed(model)]
        return cls(states, _as_logs(model.get_metrics_result()))


def examples_of(model: Any) -> float:
    """The number of examples of this rank since the metrics were reset, 1 if Keras has not counted them."""
    tracker = getattr(model, "_loss_tracker", None)
    return (0.0 if tracker is None else float(tracker.count)) or 1.0


def reduce_metrics(model: Any, values: Mapping[str, Any], own: MetricStates, weight: float) -> dict[str, Any]:
    """The values of all ranks together. Every rank must call it; one without examples has the weight 0.

    A metric whose state is a sum over the examples, as those of Keras are, is computed from the sums over the ranks:
    the average of two recalls is not the recall of both. Other values are averages with the weights of the ranks.
    """
    arrays = {name: np.asarray(value, np.float64) for name, value in values.items()} if weight else {}
    known = [name for name, value in arrays.items() if _is_result(own, name, value)]
    shapes = [[state.shape for state in part] for part in own.states] if weight else []
    ranks = exchange.allgather_object(({name: each.shape for name, each in arrays.items()}, shapes, known))
    names, shapes, _ = max(ranks, key=lambda entry: len(entry[0]))
    states = own.states if weight else [[np.zeros(shape) for shape in part] for part in shapes]
    summed = [state for part in states for state in part]
    weighted = [arrays[name] * weight if weight else np.zeros(shape) for name, shape in names.items()]
    *totals, total_weight = _sums([*summed, *weighted, np.array(weight)])
    metrics = {name: total / total_weight for name, total in zip(names, totals[len(summed) :], strict=True)}
    exact = [name for name in names if all(name in known for present, _, known in ranks if present)]
    if exchange.rank() == 0:
        results = _results(model, totals[: len(summed)])
        _report([name for name in names if results.get(name) is AVERAGED])
        exact = [name for name in exact if results[name] is not AVERAGED]
        metrics |= {name: results[name] for name in exact}
    broadcast: dict[str, Any] = exchange.broadcast_object(metrics, root_rank=0)
    return broadcast


def _is_result(own: MetricStates, name: str, value: Any) -> bool:
    """Whether the value is that of the states, which another evaluation can have changed since."""
    result = own.results.get(name)
    return result is not None and result.shape == value.shape and bool(np.allclose(result, value, equal_nan=True))


def _sums(parts: list[Any]) -> list[Any]:
    flat = np.concatenate([np.ravel(part) for part in parts])
    total = np.asarray(exchange.allreduce(flat, op=exchange.Sum, name="HorovodMetrics", **UNSCOPED))
    pieces = np.split(total, np.cumsum([np.size(part) for part in parts])[:-1])
    return [piece.reshape(np.shape(part)) for piece, part in zip(pieces, parts, strict=True)]


def _results(model: Any, states: list[Any]) -> dict[str, Any]:
    """The results with other states of the metrics, which then have their own states again.

    AVERAGED is the result of a metric whose state is not known to be a sum.
    """
    variables = [variable for metric in _summed(model) for variable in metric.variables]
    others = [metric for metric in _metrics(model) if not _is_sum(metric)]
    own = [np.array(variable) for variable in variables]
    for variable, value in zip(variables, states, strict=True):
        variable.assign(value)
    for metric in others:  # so that Keras gives it its names in the logs
        vars(metric)["result"] = lambda result=metric.result: keras.tree.map_structure(lambda _: AVERAGED, result())
    results = _as_logs(model.get_metrics_result())
    for metric in others:
        del vars(metric)["result"]
    for variable, value in zip(variables, own, strict=True):
        variable.assign(value)
    return results


def _as_logs(results: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of the results as Keras has them in the logs: a metric can have a dict, and a vector of one element."""
    logs: dict[str, Any] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            logs |= _as_logs(value)
        elif value is AVERAGED:
            logs[name] = value
        else:
            array = np.array(value, np.float64)
            logs[name] = array.reshape(()) if array.size == 1 else array
    return logs


def _metrics(model: Any) -> Iterator[Any]:
    for metric in model.metrics:
        yield from getattr(metric, "metrics", None) or (metric,)


def _summed(model: Any) -> Iterator[Any]:
    return (metric for metric in _metrics(model) if _is_sum(metric))


def _is_sum(metric: Any) -> bool:
    """Whether the state of a metric is a sum over the examples."""
    kind: Any = type(metric)
    # A subclass with the result of Keras only counts other values of an example.
    base: Any = next(each for each in kind.__mro__ if each.__module__.startswith("keras."))
    return kind.result is base.result or bool(getattr(metric, SUM_ATTRIBUTE, False))


def _report(names: list[str]) -> None:
    for name in names:
        if name not in _reported and exchange.size() > 1:
            _reported.add(name)
            print(
                f"Horovod: the metric {name} is the average of the ranks, weighted by their examples, because its "
                f"state is not known to be a sum; if it is one, set {SUM_ATTRIBUTE} = True in its class",
                file=sys.stderr,
                flush=True,
            )
