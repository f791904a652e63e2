"""A run of a script between the first and the last step of a start: state, checkpoints, SIGTERM and reports."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import absl.logging

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, active
from horovodjob_trainer.checkpoint.writer import WritePolicy
from horovodjob_trainer.errors import DataError, JobError, Terminated
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.reporting.best_values import BestValues, declared_modes, metric_objects, own_mode, record_ends
from horovodjob_trainer.reporting.metric_values import all_values
from horovodjob_trainer.reporting.reporter import Reporter, TrainingPosition
from horovodjob_trainer.run.coordination import Coordination
from horovodjob_trainer.run.model_values import ModelValues
from horovodjob_trainer.run.ranks import call_on_all_ranks, log
from horovodjob_trainer.run.scripts.batches import Batches
from horovodjob_trainer.run.scripts.callback_states import callback_states, restore_callbacks
from horovodjob_trainer.run.scripts.options import RunOptions
from horovodjob_trainer.run.scripts.start import compare_ranks, start
from horovodjob_trainer.run.session import Session
from horovodjob_trainer.run.termination import Termination
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.start import watched


class ScriptSession(Session):
    """A start of a run of a script. Its callers order the steps: `fit`, or the loop of the script."""

    def __init__(
        self,
        options: RunOptions,
        batches: Batches,
        values: ModelValues,
        output: OutputDirectory | None,
        termination: Termination,
    ) -> None:
        super().__init__(
            values,
            batches.job_batch,
            WritePolicy(options.keep, options.every_seconds, options.failure_seconds, options.every_steps),
            output=output,
            reporter=_reporter(options, batches) if output is not None else None,
            termination=termination,
            coordination=Coordination(),
        )
        self.options, self.batches = options, batches
        self.callbacks: Sequence[Any] = ()
        """The callbacks of `fit`, which have states and can declare the best value of a metric."""
        self.iterator: Any = None
        """The batches of the steps that remain, after `begin_epoch`."""

    def place(self) -> str:
        """The current step, for messages."""
        if self.state.position >= self.state.total:
            return "the end of the training"
        if self.state.unvalidated is not None:
            return f"the end of epoch {self.state.epoch}"
        return f"step {self.step_in_epoch + 1} of epoch {self.state.epoch + 1}"

    def next_batch(self) -> Any:
        """The batch of the next step. Raises DataError if the data has ended."""
        try:
            return next(self.iterator)
        except StopIteration:
            raise DataError(self.data_end()) from None

    def data_end(self) -> str:
        """The problem of data that has ended before the run."""
        return (
            f"the data has ended before {self.place()}, and the run needs {self._steps_in_epoch} steps per epoch: the "
            "dataset must have batches each time it is read, so let from_generator call a function that makes a new "
            "generator, or pass fewer steps or epochs"
        )

    def begin_epoch(self) -> None:
        """Begin or continue the steps of an epoch. All ranks raise JobError without the data."""
        self.iterator = call_on_all_ranks(self._open_iterator, Launch())
        super().begin_epoch()

    def end_validation(self, metrics: Mapping[str, Any]) -> None:
        record_ends(self.state.ends, self.state.epoch, _values(metrics))
        super().end_validation(metrics)

    def end(self) -> None:
        """Write the checkpoint of the last step, after which a later start has no steps.

        All ranks raise JobError if it cannot be on the disk.
        """
        problem = None
        # Also waiting for the other ranks, which is no exchange of a step.
        with ACTIVITY.section(Section.CHECKPOINT):
            self.write()
            if self.writer is not None:
                self.finish_write(self.writer)
                if not self.writer.has_written(self.state.step):
                    problem = self.writer.problem or self.writer.resume_point(self.state.step)
            if problem := hvd.broadcast_object(problem, root_rank=0):
                raise JobError(problem)
            if self.reporter is not None:
                self.reporter.close(done=True)

    def close(self) -> None:
        """End the reports and the writes of a start that has not reached the last step."""
        if self.reporter is not None:
            self.reporter.close(done=False)
        self.wait()

    def restore_callbacks(self) -> None:
        """Give the callbacks the states that they had in the run, after their training has begun."""
        states = self.state.callbacks or [{}]
        own = states[hvd.rank() if hvd.rank() < len(states) else 0]
        restore_callbacks(self.callbacks, own, self.state.arrays, log)

    def _open_iterator(self) -> Any:
        iterator = self.batches.iterator(self.state)
        if (problem := self.batches.problem) is not None:
            if self.options.resume != "continue":
                raise DataError(problem)
            print(f"Continuing on rank {hvd.rank()} although {problem.partition(':')[0]}", flush=True)
        return iterator

    def complete_state(self) -> None:
        """Record in the state what differs between the ranks."""
        own, self.state.arrays = callback_states(self.callbacks)
        gathered = hvd.allgather_object((self.batches.order(self.state.position), own))
        self.state.order = [order for order, _ in gathered]
        states = [each for _, each in gathered]
        self.state.callbacks = states if any(each != states[0] for each in states) else states[:1]

    def report(self, reporter: Reporter, position: TrainingPosition, metrics: Mapping[str, Any]) -> None:
        rate = float(metrics.get("learning_rate", float("nan")))
        reporter.report(position, _values(metrics), rate, self._best_values())

    def _best_values(self) -> BestValues:
        monitor, ends = self.options.monitor, self.state.ends
        modes = declared_modes(ends, metric_objects(self.values.model), self.callbacks)
        return BestValues(monitor, modes | own_mode(monitor, self.options.mode), ends)


def _values(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the metrics, without the learning rate that Keras adds to them."""
    return all_values({name: value for name, value in metrics.items() if name != "learning_rate"})


@contextmanager
def open_session(
    options: RunOptions, batches: Batches, model: Any, optimizers: Sequence[Any], epochs: int
) -> Iterator[ScriptSession]:
    """The run in the directory with its state restored. Every rank calls it. At SIGTERM, the process exits with 143.

    Errors are those of all ranks.
    """
    check_ranks()
    for optimizer in optimizers:
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
    variables = training_variables(model, optimizers)
    with watched(hvd):  # the share of the directory can hang
        compare_ranks(options, batches, epochs)
        output, state = start(options, batches, optimizers, variables, epochs)
        termination = Termination()
        termination.grace_seconds = options.grace_seconds
        with active(output), ExitStack() as at_end, termination.handled():
            hvd.broadcast_variables(variables, root_rank=0)
            with _quiet_keras():
                values = ModelValues(model, optimizers, state)
                session = ScriptSession(options, batches, values, output, termination)
            at_end.callback(session.close)
            try:
                yield session
            except Terminated as error:
                raise SystemExit(error.exit_code) from None


def check_ranks() -> None:
    """Raise RuntimeError if the ranks of this process cannot keep a run."""
    if not hvd.is_initialized():
        raise RuntimeError("call hvd.init() before the run begins")
    if Launch.from_environment(os.environ).elastic:
        raise RuntimeError("a run in a directory needs a fixed number of ranks: with elastic Horovod, use hvd.elastic")


@contextmanager
def _quiet_keras() -> Iterator[None]:
    """Suppress the warning of Keras that .h5, the format of the checkpoints, is legacy."""
    verbosity = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.ERROR)
    try:
        yield
    finally:
        absl.logging.set_verbosity(verbosity)


def _reporter(options: RunOptions, batches: Batches) -> Reporter:
    return Reporter(
        directory=Path(os.environ.get("AZ_BATCHAI_STDOUTERR_DIR") or options.directory),
        ranks=hvd.size(),
        interval_seconds=options.log_seconds,
        log=log,
        unit=batches.unit,
    )
