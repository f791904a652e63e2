"""The checkpoints of a run and its agreed end, after steps that are the same on all ranks."""

import math
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import CheckpointLayout
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import CheckpointWriter, WritePolicy
from horovodjob_trainer.errors import JobError, Terminated
from horovodjob_trainer.hvd.collectives import SEED_STATE_NAME
from horovodjob_trainer.hvd.learning_rate import innermost
from horovodjob_trainer.run.coordination import Coordination, RoundResult
from horovodjob_trainer.run.step import average_moving_statistics, moving_statistics
from horovodjob_trainer.run.termination import LoopStage, Termination
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section

BLOCKED_ROUND_SECONDS = 1.0


class StepCheckpoints:
    """Decides with the other ranks when to write a checkpoint and when to end, and does both.

    Every rank calls the same methods after the same steps. Only rank 0 has an `output`, and with it a `writer`.
    A step consumes `job_batch` of what the state counts. `variables` are those in the checkpoints: the weights of the
    model, then the variables of the optimizers. With `averages_in_step`, the step itself averages the statistics.
    """

    def __init__(
        self,
        model: Any,
        optimizers: Sequence[Any],
        variables: Sequence[Any],
        state: RunState,
        *,
        job_batch: int,
        every_steps: int | None,
        output: OutputDirectory | None,
        policy: WritePolicy,
        termination: Termination,
        coordination: Coordination,
        averages_in_step: bool = False,
        log: Any,
    ) -> None:
        self.variables, self.state, self.job_batch, self.every_steps = variables, state, job_batch, every_steps
        self.termination, self.coordination, self.log = termination, coordination, log
        self.is_due = self.stop_is_requested = False
        self._seed_states = [v for v in model.variables if v.name == SEED_STATE_NAME]
        inner = [innermost(optimizer) for optimizer in optimizers]
        self._accumulate = math.lcm(*(int(each.gradient_accumulation_steps or 1) for each in inner))
        gradients = [getattr(each, "_accumulated_gradients", None) or [] for each in inner]
        self._accumulated_gradients = [gradient for part in gradients for gradient in part]
        self.moving_statistics = moving_statistics(model)
        self._averages_in_step, self._averaged_step = averages_in_step, state.step
        self.writer: CheckpointWriter | None = None
        termination.last_message = None if output is None else self._termination_message
        if output is not None:
            self.writer = CheckpointWriter(output, CheckpointLayout.of_model(model, variables), policy, log)

    @property
    def updates_weights(self) -> bool:
        """Whether the last step has updated the weights.

        Between two updates the optimizer of each rank holds different gradients, which a checkpoint cannot contain.
        """
        return self.state.step % self._accumulate == 0

    def restore_seeds(self) -> None:
        """Let the random layers continue with the numbers that follow those of the run. Each rank keeps its seed."""
        for seed_state, count in zip(self._seed_states, self.state.draws, strict=False):
            seed_state.assign(np.array([int(seed_state.value[0]), count]))

    def record_step(self) -> None:
        """Advance the state by a step of all ranks."""
        self.state.advance(self.job_batch, hvd.size())
        self.termination.heartbeat()
        ACTIVITY.complete_step(self.state.step)
        self.is_due |= bool(self.every_steps and self.state.step % self.every_steps == 0)

    def exchange(self) -> RoundResult:
        """Agree with all ranks whether to end and whether a checkpoint is due. Raises JobError if none can be written.

        Every rank must call it after the same step.
        """
        writer = self.writer
        problem = None if writer is None else writer.problem
        result = self.coordination.round(
            terminate=self.termination.requested,
            checkpoint_is_due=writer is not None and writer.is_due,
            output_failed=problem is not None,
        )
        if result.output_failed:
            raise JobError(hvd.broadcast_object(problem, root_rank=0))  # another rank can end first
        self.stop_is_requested |= result.terminate
        self.is_due |= result.checkpoint_is_due
        return result

    def write(self) -> None:
        """Write a checkpoint of the current step while training continues."""
        self.is_due = False
        with ACTIVITY.section(Section.CHECKPOINT):
            self.average_statistics()
            self.record_seeds()
            if self.writer is not None:
                self.writer.write(self.variables, self.state, self._name())

    def terminate(self) -> NoReturn:
        """End the run with a checkpoint of the current step. All ranks raise Terminated."""
        deadline = self.termination.begin_last_write()
        self.average_statistics()
        if self.writer is not None:
            self.record_seeds()
            self.writer.finish(self.variables, self.state, self._name(), deadline=deadline)
            self.log(self._termination_message())
        hvd.allgather_object(None)  # the other ranks stay alive until the checkpoint is on the disk
        raise Terminated("ended by SIGTERM")

    def save_blocked(self) -> None:
        """Write the checkpoint of the last step while a rank waits for a batch that does not come.

        The threads of SIGTERM of all ranks call it, which return when it is on the disk. Without such a rank, or if one
        has not received the signal, they do not return. An operation that the steps do not use connects them.
        """
        while not self._is_saved_blocked():
            time.sleep(BLOCKED_ROUND_SECONDS)

    def _is_saved_blocked(self) -> bool:
        self._messages([0, 0])  # all ranks are here: from now on, none waits long for another
        with self.termination.held() as stage:
            ranks = self._messages([self.state.step, stage])
            waiting = [rank for rank, (_, each) in enumerate(ranks) if each == LoopStage.BATCH]
            are_between = all(step == self.state.step and each != LoopStage.ELSEWHERE for step, each in ranks)
            if not (waiting and are_between and self.updates_weights and (self._accumulate == 1 or len(ranks) == 1)):
                return False
            deadline = self.termination.begin_last_write()
            self._use_values_of(waiting[0])
            if self.writer is not None:
                names = self.coordination.rank_names(waiting)
                self.log(f"The data does not respond: after SIGTERM, the next batch is missing on {names}")
                self.writer.finish(self.variables, self.state, self._name(), deadline=deadline)
            self._messages([0, 0])  # the other ranks stay alive until the checkpoint is on the disk
        return True

    def _use_values_of(self, rank: int) -> None:
        """Give all ranks the values after the last step of one that waits: the others can be in the next step.

        The next step changes their counters and statistics, but no weight, as it needs this rank.
        """
        self.average_statistics()
        if hvd.size() > 1:
            hvd.broadcast_variables(self.variables, root_rank=rank)
        self.record_seeds()
        self.state.draws = hvd.broadcast_object(self.state.draws, root_rank=rank)

    def _messages(self, own: Sequence[int]) -> list[list[int]]:
        """The numbers of all ranks."""
        if hvd.size() == 1:
            return [list(own)]
        with tf.device("CPU:0"):  # the steps may occupy the device
            sent = tf.constant([own] * hvd.size(), tf.int64)
            received: list[list[int]] = hvd.alltoall(sent, name="last_checkpoint").numpy().tolist()
        return received

    def finish(self) -> None:
        """Wait until the checkpoint of the last step is on the disk. All ranks raise JobError if it cannot be."""
        problem = None
        if self.writer is not None:
            with ACTIVITY.section(Section.CHECKPOINT):
                self.writer.finish(self.variables, self.state, self._name())
            if not self.writer.has_written(self.state.step):
                problem = self.writer.problem or self.writer.resume_point(self.state.step)
        if problem := hvd.broadcast_object(problem, root_rank=0):
            raise JobError(problem)

    def wait(self) -> None:
        """Wait for the current write."""
        if self.writer is not None:
            with ACTIVITY.section(Section.CHECKPOINT):
                self.writer.wait()

    def average_accumulated_gradients(self) -> None:
        """Give all ranks the same accumulated gradients, so that a checkpoint can contain them."""
        for gradient in self._accumulated_gradients:
            gradient.assign(hvd.allreduce(gradient.value, op=hvd.Average, name=gradient.path))

    def average_statistics(self) -> None:
        """Average the moving statistics before something reads them. Every rank calls it after the same step."""
        if self._averaged_step != self.state.step and not self._averages_in_step:
            self._averaged_step = self.state.step
            average_moving_statistics(self.moving_statistics)

    def record_seeds(self) -> None:
        """Record in the state how many numbers the random layers have drawn."""
        self.state.draws = [int(seed_state.value[1]) for seed_state in self._seed_states]

    def _name(self) -> tuple[int, int]:
        return self.state.epoch, self.state.step_in_epoch(self.job_batch)

    def _termination_message(self) -> str:
        assert self.writer is not None
        return f"SIGTERM: {self.writer.resume_point(self.state.step)}"
