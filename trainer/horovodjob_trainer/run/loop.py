"""The training loop. Every rank performs the same sequence of collective operations."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.layout import CheckpointLayout, snapshot, training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import CheckpointWriter
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.data.example_reader import data_error
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import NonFiniteLoss, RanksDiffer, Terminated
from horovodjob_trainer.reporting.reporter import Reporter, TrainingPosition
from horovodjob_trainer.run.augmentation import Augmentation
from horovodjob_trainer.run.coordination import Coordination, average_over_ranks
from horovodjob_trainer.run.early_stopping import update_best_epoch
from horovodjob_trainer.run.evaluation import Evaluation
from horovodjob_trainer.run.learning_rate import LearningRate, innermost
from horovodjob_trainer.run.learning_rate_schedule import LearningRateSchedule
from horovodjob_trainer.run.loss import label_encoding
from horovodjob_trainer.run.pipeline import evaluation_batches, training_batches
from horovodjob_trainer.run.step import build_step_function, time_gradient_reduction
from horovodjob_trainer.run.termination import Termination

SHIFT = 0.1  # share of the height and width of an image, in each direction


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a run that do not depend on the number of ranks."""

    configuration: Configuration
    dataset: Dataset
    model: Any
    base_rate: float | None
    scaling: str
    threads: int
    termination: Termination
    log: Callable[[str], None]


class Loop:
    """Trains a model with the current ranks. Only rank 0 has an `output` and a `reporter`."""

    def __init__(
        self,
        setup: Setup,
        state: RunState,
        *,
        output: OutputDirectory | None,
        reporter: Reporter | None,
        commit: Callable[[], None] | None = None,
    ) -> None:
        self.setup, self.state, self.reporter, self.commit = setup, state, reporter, commit
        self.configuration, self.model, self.size = setup.configuration, setup.model, hvd.size()
        self.job_batch = self.configuration.batch_size * self.size
        first_batch = self.configuration.batch_size * state.first_size
        self.schedule = LearningRateSchedule.from_configuration(
            self.configuration,
            base=setup.base_rate,
            scaling=setup.scaling,
            epochs=state.epochs,
            steps_per_epoch=state.epoch_examples / first_batch,
        )
        self.learning_rate = LearningRate(self.model.optimizer, self._previous_rate())
        self.variables = training_variables(self.model)
        self.seed_states = [v for v in self.model.variables if v.name == "seed_generator_state"]
        inner = innermost(self.model.optimizer)
        self.accumulate = int(inner.gradient_accumulation_steps or 1)
        self.accumulated_gradients = list(getattr(inner, "_accumulated_gradients", None) or [])
        with tf.device("CPU"):  # the host reads and writes it
            self.reduction_seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
        self.coordination = Coordination(self.reduction_seconds, setup.log)
        self.checkpoints = None
        if output is not None:
            layout = CheckpointLayout.of_model(self.model)
            keep = self.configuration.keep_checkpoints
            self.checkpoints = CheckpointWriter(output, layout, keep=keep, log=setup.log)
        test = setup.dataset.test
        batches = evaluation_batches(
            test,
            batch=self.configuration.validation_batch_size,
            rank=hvd.rank(),
            size=self.size,
            threads=setup.threads,
        )
        self.evaluation = Evaluation(self.model, test, self._with_encoded_labels(batches), setup.termination)
        self.run_step = build_step_function(self.model, self.learning_rate.velocity_factor)
        if not self.configuration.deterministic:  # TensorFlow then refuses to read the clock
            time_gradient_reduction(self.model.optimizer, self.reduction_seconds)

    def train(self) -> None:
        """Run all remaining steps. If the run cannot continue, all ranks raise the same JobError."""
        state, termination = self.state, self.setup.termination
        for seed_state, count in zip(self.seed_states, state.draws, strict=False):
            seed_state.assign(np.array([int(seed_state.value[0]), count]))
        batches = iter(self._training_batches())
        termination.set_training(True)
        try:
            while not self._is_finished():
                self._epoch(batches)
        except tf.errors.OpError as error:
            raise data_error(error, self.setup.dataset.train) or error from error
        finally:
            if self.checkpoints:
                self.checkpoints.wait()
            termination.set_training(False)

    def result(self) -> dict[str, float]:
        """Loss and metrics of the model in its current state."""
        return self.evaluation.metrics(self.state.position)

    def _epoch(self, batches: Iterator[Any]) -> None:
        state = self.state
        end = (state.epoch + 1) * state.epoch_examples
        self._steps_in_epoch = state.steps_in_epoch(self.job_batch)
        self.model.reset_metrics()
        self.coordination.restart_clock()
        if self.reporter:
            self.reporter.begin(state.position)
        logs: dict[str, Any] = {}
        while state.position < end and not self._is_finished():
            logs = self._step(batches, end)
        if state.position >= end:
            self._end_epoch(logs)

    def _step(self, batches: Iterator[Any], epoch_end: int) -> dict[str, Any]:
        state, configuration = self.state, self.configuration
        self.learning_rate.set(self._rate_at(state.position))
        logs: dict[str, Any] = self.run_step(batches)
        state.position += self.job_batch
        state.step += 1
        self.setup.termination.heartbeat()
        ends_epoch = state.position >= epoch_end
        # Between two updates the optimizer of each rank holds different gradients, which a checkpoint cannot contain.
        updates_weights = state.step % self.accumulate == 0
        self._checkpoint_is_due |= bool(
            configuration.checkpoint_steps and state.step % configuration.checkpoint_steps == 0
        )
        is_round_due = self.coordination.record_step(state.step, logs["loss"])
        if is_round_due or ends_epoch or self._checkpoint_is_due or self._is_finished():
            self._coordinate()
        if configuration.check_sync_every and state.step % configuration.check_sync_every == 0:
            self._check_sync()
        if self.reporter and not ends_epoch and self.reporter.is_due():
            position = self._training_position(state.epoch + 1, state.step_in_epoch(self.job_batch))
            self.reporter.report(position, _floats(logs), float(self.model.optimizer.learning_rate))
        if updates_weights and not ends_epoch:
            self._end_step()
        return logs

    def _end_step(self) -> None:
        """Terminate, write a checkpoint or commit after a step within an epoch."""
        if self._stop_is_requested:
            self._write_checkpoint()
            self._terminate()
        if self._checkpoint_is_due:
            self._write_checkpoint()
        if self.state.step % self.configuration.commit_steps == 0:
            self._commit()

    def _end_epoch(self, logs: dict[str, Any]) -> None:
        state = self.state
        rate = float(self.model.optimizer.learning_rate)
        metrics = average_over_ranks(_floats(logs), 1.0)
        if self.reporter:
            self.reporter.pause(state.position)
        metrics |= {f"val_{name}": value for name, value in self.evaluation.metrics(state.position).items()}
        update_best_epoch(state, metrics, self.configuration, self.setup.log)
        if self.reporter:
            position = self._training_position(state.epoch, self._steps_in_epoch)
            self.reporter.report(position, metrics, rate)
        for gradient in self.accumulated_gradients:
            gradient.assign(hvd.allreduce(gradient.value, op=hvd.Average, name=gradient.path))
        self._write_checkpoint()
        if self._stop_is_requested and not self._is_finished():
            self._terminate()
        self._commit()

    def _coordinate(self) -> None:
        result = self.coordination.round(terminate=self.setup.termination.requested)
        if result.nonfinite_step is not None:
            ranks = self.coordination.rank_names(result.nonfinite_ranks)
            problem = f"the loss is not a number since step {result.nonfinite_step}, first on {ranks}"
            if self.configuration.on_nonfinite == "stop":
                raise NonFiniteLoss(f"{problem}; try a lower --learning-rate or --clip-norm 1, or check the data of "
                                    "that step (--on-nonfinite continue continues the training)")  # fmt: skip
            if not self._nonfinite_is_logged:
                self._nonfinite_is_logged = True
                self.setup.log(f"Training continues although {problem}")
        self._stop_is_requested |= result.terminate

    def _terminate(self) -> None:
        if self.checkpoints:
            self.checkpoints.wait()
        self.setup.log(f"SIGTERM: stopped after step {self.state.step}, from which the next attempt continues")
        hvd.allgather_object(None)  # the other ranks stay alive until the checkpoint is on the disk
        raise Terminated("ended by SIGTERM")

    def _check_sync(self) -> None:
        different_ranks = self.coordination.different_ranks(self.model.weights)
        if different_ranks:
            raise RanksDiffer(
                f"after step {self.state.step} the weights of {self.coordination.rank_names(different_ranks)} differ "
                "from those of the other ranks; a layer or an optimizer of the model changes them without averaging"
            )

    def _write_checkpoint(self) -> None:
        state, self._checkpoint_is_due = self.state, False
        self._record_seed_states()
        if self.checkpoints is not None:
            name = (state.epoch, state.step_in_epoch(self.job_batch))
            self.checkpoints.write(snapshot(self.variables), state, name)

    def _commit(self) -> None:
        if self.commit:
            self._record_seed_states()
            self.commit()

    def _record_seed_states(self) -> None:
        self.state.draws = [int(seed_state.value[1]) for seed_state in self.seed_states]

    def _is_finished(self) -> bool:
        state = self.state
        return (
            state.stopped or state.position >= state.total or state.step >= (self.configuration.max_steps or math.inf)
        )

    def _rate_at(self, position: int) -> float:
        return self.schedule.rate(position / self.state.epoch_examples, self.size)

    def _previous_rate(self) -> float:
        position = self.state.position
        return self._rate_at(max(position - self.job_batch, 0)) if position else 0.0

    def _training_position(self, epoch: int, step: int) -> TrainingPosition:
        state = self.state
        return TrainingPosition(
            epoch=epoch,
            epochs=state.epochs,
            step=step,
            steps_per_epoch=self._steps_in_epoch,
            examples=state.position,
            total_examples=state.total,
            global_step=state.step,
        )

    def _training_batches(self) -> Any:
        configuration = self.configuration
        batches = training_batches(
            self.setup.dataset.train,
            batch=configuration.batch_size,
            rank=hvd.rank(),
            size=self.size,
            seed=configuration.seed,
            position=self.state.position,
            augment=Augmentation(shift=SHIFT if configuration.augment else 0.0, flip=configuration.flip),
            threads=self.setup.threads,
        )
        return self._with_encoded_labels(batches)

    def _with_encoded_labels(self, batches: Any) -> Any:
        encode = label_encoding(self.model, self.setup.dataset.train.classes)
        return batches.map(encode) if encode else batches

    _nonfinite_is_logged = _checkpoint_is_due = _stop_is_requested = False
    _steps_in_epoch = 0


def _floats(logs: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}
