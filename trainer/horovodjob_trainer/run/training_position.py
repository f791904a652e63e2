"""The position of a run in its progress reports."""

from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.reporting.reporter import TrainingPosition


def training_position(state: RunState, epoch: int, step: int, steps_per_epoch: int) -> TrainingPosition:
    """The position of the run, `step` steps into epoch number `epoch`, counted from 1."""
    return TrainingPosition(
        epoch=epoch,
        epochs=state.epochs,
        step=step,
        steps_per_epoch=steps_per_epoch,
        examples=state.position,
        total_examples=state.total,
        global_step=state.step,
    )
