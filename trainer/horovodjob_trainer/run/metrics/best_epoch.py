"""The best epoch of a run, the metric that selects it, and early stopping.

All ranks decide alike because the metrics are averaged over them.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import JobError, ModelError
from horovodjob_trainer.reporting.best_values import (
    BestValues,
    declared_modes,
    metric_mode,
    metric_objects,
    record_ends,
)
from horovodjob_trainer.reporting.metric_values import without_elements

MINIMUM, MAXIMUM = "min", "max"


def check_monitor(model: Any, configuration: Configuration) -> None:
    """Raise ModelError if the compiled model has the metric, and neither a setting nor Keras has its direction."""
    name = configuration.monitor.removeprefix("val_")
    if any(name == each.name for each in metric_objects(model)):
        monitor_mode(model, configuration)


def monitor_mode(model: Any, configuration: Configuration) -> str:
    """`min` or `max`: --monitor-mode, else the direction of the metric. Raises ModelError if it is unknown."""
    if configuration.monitor_mode != "auto":
        return configuration.monitor_mode
    name = configuration.monitor.removeprefix("val_")
    if declared := metric_mode(name, metric_objects(model)):
        return declared
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
    record_ends(state.ends, epoch, metrics)
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


def best_values(model: Any, state: RunState, configuration: Configuration) -> BestValues:
    """The best values of the run, as a progress report has them."""
    modes = declared_modes(state.ends, metric_objects(model))
    if configuration.monitor in state.ends:
        with contextlib.suppress(ModelError):  # nobody has said which value is the best
            modes[configuration.monitor] = monitor_mode(model, configuration)
    return BestValues(configuration.monitor, modes, state.ends)


def _select_by(state: RunState, selection: str, log: Callable[[str], None]) -> None:
    """Forget the best epoch of another metric."""
    if state.selection not in ("", selection) and state.best_epoch:
        log(f"Earlier epochs were compared by {state.selection}, and later ones by {selection}")
        state.best, state.best_epoch = None, 0
    state.selection = selection
