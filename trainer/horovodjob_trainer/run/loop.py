"""The steps of a run, from wherever its state is to its end; the same sequence of exchanges on every rank."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.layout import Form, snapshot, variables_of
from horovodjob_trainer.checkpoint.output_directory import Checkpoints, Output
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.data.example_reader import explained
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import NonFiniteLoss, RanksDiffer, Terminated
from horovodjob_trainer.reporting.reporter import Place, Reporter
from horovodjob_trainer.run.augmentation import Augmentation
from horovodjob_trainer.run.compilation import labels_as
from horovodjob_trainer.run.coordination import Coordination, averaged
from horovodjob_trainer.run.learning_rate_schedule import Schedule
from horovodjob_trainer.run.pipeline import evaluation_batches, training_batches
from horovodjob_trainer.run.step import step_function, time_exchange
from horovodjob_trainer.run.termination import Termination

EVALUATION_BATCH = 250
SHIFT = 0.1  # of the image's side, in each direction


@dataclass(frozen=True, slots=True)
class Setup:
    """What this rank trains with, whatever the number of ranks."""

    run: Configuration
    dataset: Dataset
    model: Any
    base_rate: float
    threads: int
    termination: Termination
    say: Callable[[str], None]


class Loop:
    """Trains one model with the present ranks. Rank 0 has `output` and `reporter`, the others None."""

    def __init__(
        self,
        setup: Setup,
        state: RunState,
        *,
        output: Output | None,
        reporter: Reporter | None,
        commit: Callable[[], None] | None = None,
    ) -> None:
        self.setup, self.state, self.reporter, self.commit = setup, state, reporter, commit
        self.run, self.model, self.size = setup.run, setup.model, hvd.size()
        self.job_batch = self.run.batch_size * self.size
        first_batch = self.run.batch_size * state.first_size
        self.schedule = Schedule.of(self.run, base=setup.base_rate, epochs=state.epochs,
                                    steps_per_epoch=state.epoch_examples // first_batch)  # fmt: skip
        self.variables = variables_of(self.model)
        self.draws = [v for v in self.model.variables if v.name == "seed_generator_state"]
        inner = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        self.accumulated = list(getattr(inner, "_accumulated_gradients", None) or [])
        with tf.device("CPU"):  # read and written by the host
            self.waited = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self.velocity_factor = tf.Variable(1.0, trainable=False)
        self.coordination = Coordination(self.waited, setup.say)
        self.checkpoints = None
        if output is not None:
            self.checkpoints = Checkpoints(output, Form.of(self.model), keep=self.run.keep_checkpoints, say=setup.say)
        batches = evaluation_batches(setup.dataset.test, batch=EVALUATION_BATCH, rank=hvd.rank(), size=self.size,
                                     threads=setup.threads)  # fmt: skip
        self.test_batches = self._labelled(batches)
        self.one_step = step_function(self.model, self.velocity_factor)
        if not self.run.deterministic:  # TensorFlow then refuses to read the clock
            time_exchange(self.model.optimizer, self.waited)
        self.best_is_less = "accuracy" not in self.run.monitor and "auc" not in self.run.monitor

    def train(self) -> None:
        """Every step that is left. Raises a JobError, the same on all ranks, when the run cannot go on."""
        state, termination = self.state, self.setup.termination
        for draw, count in zip(self.draws, state.draws, strict=False):
            draw.assign(np.array([int(draw.value[0]), count]))
        if state.position:  # the step before this one had its own rate
            before = max(state.position - self.job_batch, 0)
            self._rate = self.schedule.rate(before / state.epoch_examples, self.size)
        batches = iter(self._batches())
        termination.training(True)
        try:
            while not self._ended():
                self._epoch(batches)
        except tf.errors.OpError as error:
            raise explained(error, self.setup.dataset.train) or error from error
        finally:
            if self.checkpoints:
                self.checkpoints.wait()
            termination.training(False)

    def result(self) -> dict[str, float]:
        """Loss and metrics of the model as it is now."""
        if self._validated_at == self.state.position:
            return self._validation
        return self.evaluation()

    def evaluation(self) -> dict[str, float]:
        """Loss and metrics over the test examples of all ranks together, each example weighing the same."""
        mine = len(range(hvd.rank(), self.setup.dataset.test.samples, self.size))
        beats = [_Beat(self.setup.termination)]
        try:
            values = (
                self.model.evaluate(self.test_batches, verbose=0, return_dict=True, callbacks=beats) if mine else {}
            )
        except tf.errors.OpError as error:
            raise explained(error, self.setup.dataset.test) or error from error
        return averaged({name: float(value) for name, value in values.items()}, mine)

    def _epoch(self, batches: Any) -> None:
        state = self.state
        epoch = state.epoch
        boundary = (epoch + 1) * state.epoch_examples
        self.model.reset_metrics()
        self.coordination.restart_clock()
        if self.reporter:
            self.reporter.begin(state.position)
        logs: dict[str, Any] = {}
        while state.position < boundary and not self._ended():
            logs = self._step(batches, boundary)
        if state.position >= boundary:
            self._end_epoch(epoch, logs)

    def _step(self, batches: Any, boundary: int) -> dict[str, Any]:
        state, run = self.state, self.run
        rate = self.schedule.rate(state.position / state.epoch_examples, self.size)
        self._set_rate(rate)
        logs: dict[str, Any] = self.one_step(batches)
        state.position += self.job_batch
        state.step += 1
        self.setup.termination.beat()
        ends = state.position >= boundary
        # Between two updates each rank has gradients of its own in the optimizer, which no checkpoint could hold.
        whole = state.step % run.accumulate == 0
        self._saves |= bool(run.checkpoint_steps and state.step % run.checkpoint_steps == 0)
        if self.coordination.step(state.step, logs["loss"]) or ends or self._saves or self._ended():
            self._coordinate()
        if run.check_sync_every and state.step % run.check_sync_every == 0:
            self._check_sync()
        if self.reporter and not ends and self.reporter.due():
            place = self._place(state.epoch, state.step_in_epoch(self.job_batch))
            self.reporter.report(place, _floats(logs), rate)
        if whole and not ends:
            self._keep()
        return logs

    def _keep(self) -> None:
        """What can be kept or ended between two steps inside an epoch."""
        if self._stops:
            self._checkpoint()
            self._terminate()
        if self._saves:
            self._checkpoint()
        if self.state.step % self.run.commit_steps == 0:
            self._commit()

    def _end_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        state = self.state
        rate = float(self.model.optimizer.learning_rate)
        metrics = averaged(_floats(logs), 1.0)
        if self.reporter:
            self.reporter.pause(state.position)
        self._validation, self._validated_at = self.evaluation(), state.position
        metrics |= {f"val_{name}": value for name, value in self._validation.items()}
        self._judge(metrics, epoch + 1)
        if self.reporter:
            self.reporter.report(self._place(epoch, state.steps_in_epoch(self.job_batch)), metrics, rate)
        for gradient in self.accumulated if self.run.accumulate > 1 else ():
            gradient.assign(hvd.allreduce(gradient.value, op=hvd.Average, name=gradient.path))
        self._checkpoint()
        if self._stops and not self._ended():
            self._terminate()
        self._commit()

    def _judge(self, metrics: dict[str, float], epoch: int) -> None:
        """Whether this epoch is the best, and whether it is time to stop; the same on all ranks, as metrics are."""
        state, patience = self.state, self.run.early_stopping
        value = metrics.get(self.run.monitor)
        if value is None:
            if state.best_epoch == 0 and epoch == 1:
                self.setup.say(f"There is no metric {self.run.monitor} to find the best epoch by; "
                               f"--monitor can be one of {', '.join(sorted(metrics))}")  # fmt: skip
            return
        better = state.best is None or (value < state.best if self.best_is_less else value > state.best)
        if better and math.isfinite(value):
            state.best, state.best_epoch = value, epoch
        if patience and epoch - state.best_epoch >= patience:
            state.stopped = True
            self.setup.say(f"Stopping early: {self.run.monitor} has not become better since epoch {state.best_epoch}")

    def _coordinate(self) -> None:
        verdict = self.coordination.round(terminate=self.setup.termination.requested)
        if verdict.nonfinite_step is not None:
            where = self.coordination.named(verdict.nonfinite_ranks)
            sentence = f"the loss is not a number since step {verdict.nonfinite_step}, first on {where}"
            if self.run.on_nonfinite == "stop":
                raise NonFiniteLoss(f"{sentence}; try a lower --learning-rate, --clip-norm 1, or look at the data "
                                    "of that step (--on-nonfinite continue trains on)")  # fmt: skip
            if not self._nonfinite_said:
                self._nonfinite_said = True
                self.setup.say(f"Training goes on although {sentence}")
        self._stops |= verdict.terminate

    def _terminate(self) -> None:
        if self.checkpoints:
            self.checkpoints.wait()
        self.setup.say(f"SIGTERM: stopped after step {self.state.step}, where the next attempt goes on")
        hvd.allgather_object(None)  # the other ranks stay alive until the checkpoint is on the disk
        raise Terminated("ended by SIGTERM")

    def _check_sync(self) -> None:
        differing = self.coordination.differing(self.model.weights)
        if differing:
            raise RanksDiffer(
                f"after step {self.state.step} the weights of {self.coordination.named(differing)} are not those of "
                "the other ranks; a layer or an optimizer of the model changes them without averaging"
            )

    def _checkpoint(self) -> None:
        state, self._saves = self.state, False
        self._remember_draws()
        if self.checkpoints is not None:
            name = (state.epoch, state.step_in_epoch(self.job_batch))
            self.checkpoints.write(snapshot(self.variables), state, name)

    def _commit(self) -> None:
        if self.commit:
            self._remember_draws()
            self.commit()

    def _remember_draws(self) -> None:
        self.state.draws = [int(draw.value[1]) for draw in self.draws]

    def _ended(self) -> bool:
        state = self.state
        return state.stopped or state.position >= state.total or state.step >= (self.run.max_steps or math.inf)

    def _place(self, epoch: int, step: int) -> Place:
        state = self.state
        return Place(epoch + 1, state.epochs, step, state.steps_in_epoch(self.job_batch), state.position, state.total,
                     state.step)  # fmt: skip

    def _batches(self) -> Any:
        run = self.run
        batches = training_batches(
            self.setup.dataset.train,
            batch=run.batch_size,
            rank=hvd.rank(),
            size=self.size,
            seed=run.seed,
            position=self.state.position,
            augment=Augmentation(shift=SHIFT if run.augment else 0.0, flip=run.flip),
            threads=self.setup.threads,
        )
        return self._labelled(batches)

    def _labelled(self, batches: Any) -> Any:
        changed = labels_as(self.run, self.setup.dataset.train.classes)
        return batches.map(changed) if changed else batches

    def _set_rate(self, rate: float) -> None:
        changed = rate != self._rate
        if changed or self._rate_changed:
            self.velocity_factor.assign(rate / self._rate if changed and self._rate else 1.0)
        if changed:
            self.model.optimizer.learning_rate = rate
        self._rate, self._rate_changed = rate, changed

    _rate = 0.0
    _rate_changed = False
    _nonfinite_said = _saves = _stops = False
    _validation: dict[str, float]
    _validated_at = -1


class _Beat(keras.callbacks.Callback):  # type: ignore[misc]
    """Signs of life of a validation."""

    def __init__(self, termination: Termination) -> None:
        super().__init__()
        self.termination = termination

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.termination.beat()


def _floats(logs: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}
