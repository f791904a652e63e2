"""The trained models at the end of a run, which are tried again until they are on the disk."""

import time
from dataclasses import replace

from horovodjob_trainer.checkpoint import writer
from horovodjob_trainer.checkpoint.checkpoint_file import (
    READ_ERRORS,
    read_description,
    restore_variables,
    training_variables,
)
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import OutputError, VolumeError
from horovodjob_trainer.run.loop import Loop
from horovodjob_trainer.run.optimization.weight_averages import averages_in_model, use_averages
from horovodjob_trainer.run.ranks import log
from horovodjob_trainer.run.setup import Setup
from horovodjob_trainer.watch.activity import ACTIVITY

BEST_SUFFIX = "-best"


def save_models(setup: Setup, loop: Loop, output: OutputDirectory) -> None:
    """Save the model of the last epoch and of the best one, again after an error of the volume.

    Old checkpoints make room for them. Raises OutputError when no try has succeeded for --checkpoint-failure-seconds.
    After SIGTERM, the end of the grace period ends the process.
    """
    checkpoints = loop.writer
    assert checkpoints is not None
    if checkpoints.is_writing:  # the models would not be written either
        raise OutputError(checkpoints.problem or f"{output.directory} does not respond")
    limit, start = setup.configuration.checkpoint_failure_seconds, time.monotonic()
    while True:
        try:
            _save_once(setup, loop, output)
            return
        except VolumeError as error:
            if checkpoints.make_room(loop.state):
                continue
            if time.monotonic() - start >= limit:
                raise
            delay = min(writer.RETRY_SECONDS, limit / 3)
            log(f"The trainer {error.args[0].partition(';')[0]}; it tries again in {delay:.0f} s")
            _wait(setup, delay)
            ACTIVITY.progress()


def _save_once(setup: Setup, loop: Loop, output: OutputDirectory) -> None:
    with averages_in_model(setup.model):
        output.save_models(setup.model, log)
    _save_best_model(setup, loop.state, output)


def _save_best_model(setup: Setup, state: RunState, output: OutputDirectory) -> None:
    """Save the model of the best epoch with `-best` after its name. The model then has the weights of that epoch."""
    if not state.best_epoch:
        return
    log(f"The best epoch is {state.best_epoch} with {setup.configuration.monitor} {state.best:.4f}")
    path = output.checkpoint_path(state.best_epoch)
    try:
        if read_description(path).run != output.run:
            raise ValueError("it belongs to another run")
        restore_variables(path, training_variables(setup.model))
        use_averages(setup.model)
    except READ_ERRORS as error:
        problem = " ".join(str(error).split())[:200]
        log(f"Not saved as the best model, because {path} cannot be read: {problem}")
        return
    replace(output, model_name=output.model_name + BEST_SUFFIX).save_models(setup.model, log)


def _wait(setup: Setup, seconds: float) -> None:
    """Wait until the next try, which follows SIGTERM after a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(writer.LAST_RETRY_SECONDS, seconds))
        if setup.termination.requested:
            return
