"""What the runs of the training program and of scripts share: the start, and the order of the steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import CheckpointLayout
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import CheckpointWriter, WritePolicy
from horovodjob_trainer.errors import JobError, Terminated
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.reporting.metric_values import all_values
from horovodjob_trainer.reporting.reporter import Reporter, TrainingPosition
from horovodjob_trainer.run.coordination import Coordination, RoundResult
from horovodjob_trainer.run.model_values import ModelValues
from horovodjob_trainer.run.ranks import call_on_all_ranks, log, wait_for_all_ranks
from horovodjob_trainer.run.termination import Termination
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section


def open_run(
    open_output: Callable[[], OutputDirectory], variables: Sequence[Any], launch: Launch
) -> tuple[OutputDirectory | None, RunState | None]:
    """The output directory on rank 0, and the state of the last checkpoint on all ranks: None before the first one.

    Every rank calls it. Rank 0 opens the directory and restores the variables. All ranks raise the same JobError.
    """

    def opened() -> tuple[OutputDirectory | None, RunState | None]:
        if hvd.rank() != 0:
            return None, None
        output = open_output()
        return output, output.restore(variables, log)

    output, state = call_on_all_ranks(opened, launch)
    # With elastic Horovod, other ranks may be long past this point; a new rank gets the state when it joins them.
    return output, state if launch.elastic else hvd.broadcast_object(state, root_rank=0)


class Session:
    """A start of a run. Every rank calls the same methods after the same steps.

    A step consumes `job_batch` of what the state counts. Only rank 0 has an `output`, with it a `writer`, and a
    `reporter`. A subclass adds what only its program does, in the methods that do nothing here.
    """

    def __init__(
        self,
        values: ModelValues,
        job_batch: int,
        policy: WritePolicy,
        *,
        output: OutputDirectory | None,
        reporter: Reporter | None,
        termination: Termination,
        coordination: Coordination,
    ) -> None:
        self.values, self.state, self.job_batch, self.policy = values, values.state, job_batch, policy
        self.reporter, self.termination, self.coordination = reporter, termination, coordination
        self._is_due = self._stop_is_requested = False
        self._has_rate = False
        self._steps_in_epoch = self.state.steps_in_last_epoch(job_batch)  # if its validation is missing
        self.writer: CheckpointWriter | None = None
        termination.last_message = None if output is None else self._termination_message
        if output is not None:
            layout = CheckpointLayout.of_model(values.model, values.variables)
            self.writer = CheckpointWriter(output, layout, policy, log)

    @property
    def steps_in_epoch(self) -> int:
        """The number of steps of the current epoch, with those that are completed."""
        return self.state.steps_in_epoch(self.job_batch)

    @property
    def step_in_epoch(self) -> int:
        """The number of completed steps of the current epoch."""
        return self.state.step_in_epoch(self.job_batch)

    @property
    def is_finished(self) -> bool:
        """Whether the run has no further step."""
        return self.state.stopped or self.state.position >= self.state.total

    def begin_epoch(self) -> None:
        """Begin or continue the steps of an epoch."""
        self._steps_in_epoch = self.steps_in_epoch
        self.coordination.restart_clock()
        if self.reporter is not None:
            self.reporter.begin(self.state.position)

    def end_step(self, metrics: Callable[[], Mapping[str, Any]], loss: Any = None) -> None:
        """Record a step. Write a checkpoint or end the run if the ranks agree on it. A report has these metrics."""
        state, epoch, every_steps = self.state, self.state.epoch, self.policy.every_steps
        state.advance(self.job_batch, hvd.size())
        self.termination.heartbeat()
        ACTIVITY.complete_step(state.step)
        self._is_due |= bool(every_steps and state.step % every_steps == 0)
        is_round_due = self.coordination.record_step(state.step, loss)
        ends_epoch = state.epoch > epoch
        if is_round_due or ends_epoch or self._is_due or self.is_finished:
            self._exchange()
        self.check_step()
        if self.reporter is not None and not ends_epoch and self.reporter.is_due():
            self._report(self.reporter, epoch + 1, self.step_in_epoch, metrics())
        if self.values.are_updated and not ends_epoch:
            if self._stop_is_requested:
                self.terminate()
            if self._is_due:
                self.write()

    def begin_last_step(self) -> None:
        """Measure the rate before the last step of an epoch: the same body of a loop can validate."""
        if self.reporter is not None and self.step_in_epoch:
            self.reporter.pause(self.state.position)
            self._has_rate = True

    def end_epoch(self, metrics: Mapping[str, Any]) -> None:
        """Write the checkpoint of the epoch before its validation, which can be longer than the grace period."""
        self.state.unvalidated = all_values(metrics)
        if self.reporter is not None:
            (self.reporter.begin if self._has_rate else self.reporter.pause)(self.state.position)
        self._has_rate = False
        self.values.average_accumulated_gradients()
        if self._stop_is_requested:
            self.terminate()
        self.write()
        self.termination.expect_pause()

    def end_validation(self, metrics: Mapping[str, Any]) -> None:
        """Report the epoch with all its metrics."""
        self.state.unvalidated = None
        if self.reporter is not None:
            self._report(self.reporter, self.state.epoch, self._steps_in_epoch, metrics)

    def write(self) -> None:
        """Write a checkpoint of the current step while training continues."""
        self.complete_state()
        self._is_due = False
        self.termination.expect_pause()  # rank 0 can wait for the previous write, and the others for rank 0
        with ACTIVITY.section(Section.CHECKPOINT):
            self.values.prepare_checkpoint()
            if self.writer is not None:
                self.writer.write(self.values.variables, self.state, self._name())

    def terminate(self) -> NoReturn:
        """End the run with a checkpoint of the current step. All ranks raise Terminated."""
        self.complete_state()
        deadline = self.termination.begin_last_write()
        with ACTIVITY.section(Section.CHECKPOINT):
            self.values.prepare_checkpoint()
            if self.writer is not None:
                self.finish_write(self.writer, deadline)
                log(self._termination_message())
            wait_for_all_ranks()  # the other ranks stay alive until the checkpoint is on the disk
        raise Terminated("ended by SIGTERM")

    def finish_write(self, writer: CheckpointWriter, deadline: float = math.inf) -> None:
        """Wait until the checkpoint of the last step is on the disk, or until the deadline."""
        writer.finish(self.values.variables, self.state, self._name(), deadline=deadline)

    def wait(self) -> None:
        """Wait for the current write."""
        if self.writer is not None:
            self.termination.expect_pause()
            with ACTIVITY.section(Section.CHECKPOINT):
                self.writer.wait()

    def check_round(self, result: RoundResult) -> None:
        """Check what the ranks have exchanged."""

    def check_step(self) -> None:
        """Check a step that is recorded."""

    def complete_state(self) -> None:
        """Add to the state of the run what only this program has, before a checkpoint."""

    def report(self, reporter: Reporter, position: TrainingPosition, metrics: Mapping[str, Any]) -> None:
        """Report the metrics at this position."""
        raise NotImplementedError

    def _exchange(self) -> None:
        """Agree whether to end and whether a checkpoint is due. All ranks raise JobError if none can be written."""
        writer = self.writer
        problem = None if writer is None else writer.problem
        result = self.coordination.round(
            terminate=self.termination.requested,
            checkpoint_is_due=writer is not None and writer.is_due,
            output_failed=problem is not None,
        )
        if result.output_failed:
            raise JobError(hvd.broadcast_object(problem, root_rank=0))  # another rank can end first
        self._stop_is_requested |= result.terminate
        self._is_due |= result.checkpoint_is_due
        self.check_round(result)

    def _report(self, reporter: Reporter, epoch: int, step: int, metrics: Mapping[str, Any]) -> None:
        state = self.state
        position = TrainingPosition(
            epoch=epoch,
            epochs=state.epochs,
            step=step,
            steps_per_epoch=self._steps_in_epoch,
            examples=state.position,
            total_examples=state.total,
            global_step=state.step,
        )
        self.report(reporter, position, metrics)

    def _name(self) -> tuple[int, int]:
        return self.state.epoch, self.step_in_epoch

    def _termination_message(self) -> str:
        assert self.writer is not None
        return f"SIGTERM: {self.writer.resume_point(self.state.step)}"
