"""The best epoch of a run, and early stopping. All ranks decide alike because the metrics are averaged over them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import JobError, ModelError
from horovodjob_trainer.reporting.metric_values import without_elements
from horovodjob_trainer.run.metrics.monitor import MAXIMUM, monitor_mode


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
