"""The values of a model and its optimizers in the checkpoints of a run."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import training_variables
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.hvd.collectives import SEED_STATE_NAME
from horovodjob_trainer.hvd.learning_rate import innermost
from horovodjob_trainer.run.step import average_moving_statistics, moving_statistics


class ModelValues:
    """Gives all ranks the same values before a checkpoint. Every rank calls the same methods after the same steps.

    With `averages_in_step`, the step itself averages the statistics. Random layers continue with the numbers that
    follow those of the run.
    """

    def __init__(
        self, model: Any, optimizers: Sequence[Any], state: RunState, *, averages_in_step: bool = False
    ) -> None:
        self.model, self.state, self.variables = model, state, training_variables(model, optimizers)
        inner = [innermost(optimizer) for optimizer in optimizers]
        self.accumulate = math.lcm(*(int(each.gradient_accumulation_steps or 1) for each in inner))
        gradients = [getattr(each, "_accumulated_gradients", None) or [] for each in inner]
        self._accumulated_gradients = [gradient for part in gradients for gradient in part]
        self.moving_statistics = moving_statistics(model)
        self._averages_in_step, self._averaged_step = averages_in_step, state.step
        self._seed_states = [each for each in model.variables if each.name == SEED_STATE_NAME]
        for seed_state, count in zip(self._seed_states, state.draws, strict=False):
            seed_state.assign(np.array([int(seed_state.value[0]), count]))  # each rank keeps its seed

    @property
    def are_updated(self) -> bool:
        """Whether the last step has updated the weights.

        Between two updates the optimizer of each rank holds different gradients, which a checkpoint cannot contain.
        """
        return self.state.step % self.accumulate == 0

    def average_accumulated_gradients(self) -> None:
        """Give all ranks the same accumulated gradients, so that a checkpoint can contain them."""
        for gradient in self._accumulated_gradients:
            gradient.assign(hvd.allreduce(gradient.value, op=hvd.Average, name=gradient.path))

    def prepare_checkpoint(self) -> None:
        """Give all ranks the same values, and record in the state how many numbers the random layers have drawn."""
        self.average_statistics()
        self.state.draws = [int(seed_state.value[1]) for seed_state in self._seed_states]

    def average_statistics(self) -> None:
        """Average the moving statistics before something reads them."""
        if self._averaged_step != self.state.step and not self._averages_in_step:
            self._averaged_step = self.state.step
            average_moving_statistics(self.moving_statistics)
