"""The best epoch of a run, and early stopping. All ranks decide alike because the metrics are averaged over them."""

import math
from collections.abc import Callable, Mapping

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration


def update_best_epoch(
    state: RunState,
    metrics: Mapping[str, float],
    configuration: Configuration,
    log: Callable[[str], None],
) -> None:
    """Record the completed epoch if it is the best, and stop the run when --early-stopping requires it."""
    monitor, patience, epoch = configuration.monitor, configuration.early_stopping, state.epoch
    value = metrics.get(monitor)
    if value is None:
        if state.best_epoch == 0 and epoch == 1:
            log(f"The metric {monitor}, which selects the best epoch, does not exist; "
                f"--monitor can be one of {', '.join(sorted(metrics))}")  # fmt: skip
        return
    is_better = state.best is None or (value < state.best if _is_minimized(monitor) else value > state.best)
    if is_better and math.isfinite(value):
        state.best, state.best_epoch = value, epoch
    if patience and epoch - state.best_epoch >= patience:
        state.stopped = True
        log(f"Stopping early: {monitor} has not improved since epoch {state.best_epoch}")


def _is_minimized(metric: str) -> bool:
    return "accuracy" not in metric and "auc" not in metric
