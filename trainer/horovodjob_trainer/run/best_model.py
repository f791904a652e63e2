"""The model of the best epoch, saved beside that of the last."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from horovodjob_trainer.checkpoint.layout import READ_ERRORS, read_description, restore_variables, training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.run.optimization.weight_averages import use_averages

SUFFIX = "-best"


def save_best_model(
    model: Any, state: RunState, output: OutputDirectory, *, monitor: str, log: Callable[[str], None]
) -> None:
    """Save the model of the best epoch with `-best` after its name. The model then has the weights of that epoch."""
    if not state.best_epoch:
        return
    log(f"The best epoch is {state.best_epoch} with {monitor} {state.best:.4f}")
    path = output.checkpoint_path(state.best_epoch)
    try:
        if read_description(path).run != output.run:
            raise ValueError("it belongs to another run")
        restore_variables(path, training_variables(model))
        use_averages(model)
    except READ_ERRORS as error:
        log(f"Not saved as the best model, because {path} cannot be read: {' '.join(str(error).split())[:200]}")
        return
    replace(output, model_name=output.model_name + SUFFIX).save_models(model, log)
