"""The best epoch of a run, the metric that selects it, and early stopping.

All ranks decide alike because the metrics are averaged over them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import JobError, ModelError
from horovodjob_trainer.reporting.metric_values import without_elements

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


def update_best_epoch(
    model: Any,
    state: RunState,
    metrics: Mapping[str, float],
    configuration: Configuration,
    log: Callable[[str], None],
) -> None:
    """Record the completed epoch if it is the best, and stop the run when --early-stopping requires it.

    Raises JobError if nobody has said whether a higher value of the metric is better.
    """
    monitor, patience, epoch = configuration.monitor, configuration.early_stopping, state.epoch
    value = metrics.get(monitor)
    if value is None:
        if state.best_epoch == 0 and epoch == 1:
            log(f"The metric {monitor}, which selects the best epoch, does not exist; "
                f"--monitor can be one of {', '.join(sorted(without_elements(metrics)))}")  # fmt: skip
        return
    try:
        mode = monitor_mode(model, configuration)
    except ModelError as error:
        raise JobError(f"{error} (the run then resumes after this epoch)") from error
    _select_by(state, f"{mode} {monitor}", log)
    is_better = state.best is None or (value > state.best if mode == MAXIMUM else value < state.best)
    if is_better and math.isfinite(value):
        state.best, state.best_epoch = value, epoch
    if patience and epoch - state.best_epoch >= patience:
        state.stopped = True
        log(f"Stopping early: {monitor} has not improved since epoch {state.best_epoch}")


def _select_by(state: RunState, selection: str, log: Callable[[str], None]) -> None:
    """Forget the best epoch of another metric."""
    if state.selection not in ("", selection) and state.best_epoch:
        log(f"Earlier epochs were compared by {state.selection}, and later ones by {selection}")
        state.best, state.best_epoch = None, 0
    state.selection = selection


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
