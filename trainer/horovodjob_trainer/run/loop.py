"""The training loop. Every rank performs the same sequence of collective operations."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import NonFiniteValues, check_finite, training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import CheckpointWriter, WritePolicy
from horovodjob_trainer.data.reading.example_reader import data_error
from horovodjob_trainer.errors import JobError, NonFiniteLoss, RanksDiffer
from horovodjob_trainer.hvd.exchange import is_concurrent
from horovodjob_trainer.reporting.metric_values import mean_values
from horovodjob_trainer.reporting.reporter import Reporter
from horovodjob_trainer.run.coordination import Coordination, different_ranks, diverged_ranks
from horovodjob_trainer.run.metrics.best_epoch import best_values, update_best_epoch
from horovodjob_trainer.run.metrics.evaluation import Evaluation
from horovodjob_trainer.run.metrics.rank_metrics import metrics_over_ranks
from horovodjob_trainer.run.optimization.optimizers import LearningRates
from horovodjob_trainer.run.optimization.weight_averages import averages_in_model
from horovodjob_trainer.run.setup import Setup
from horovodjob_trainer.run.step import build_step_function
from horovodjob_trainer.run.step_checkpoints import StepCheckpoints
from horovodjob_trainer.run.training_position import training_position


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
        self.learning_rates = LearningRates(setup.optimizers, self.configuration, state, self.size)
        self.coordination = Coordination(setup.dataset.damaged)
        self.steps = StepCheckpoints(
            self.model,
            [each.optimizer for each in setup.optimizers],
            training_variables(self.model),
            state,
            job_batch=self.job_batch,
            every_steps=self.configuration.checkpoint_steps,
            output=output,
            policy=WritePolicy(
                keep=self.configuration.keep_checkpoints,
                interval_seconds=self.configuration.checkpoint_seconds or math.inf,
                failure_seconds=self.configuration.checkpoint_failure_seconds,
            ),
            termination=setup.termination,
            coordination=self.coordination,
            # Rounding makes the statistics depend on the steps at which they are averaged, such as that of SIGTERM.
            averages_in_step=self.configuration.deterministic,
            log=setup.log,
        )
        if commit is None and (is_concurrent or self.size == 1):
            setup.termination.save_blocked = self.steps.save_blocked
        self.evaluation = Evaluation(
            self.model,
            setup.dataset.test,
            setup.test_batches(),
            setup.test_preparation(),
            batch=self.configuration.validation_batch_size,
            termination=setup.termination,
        )
        in_step = self.steps.moving_statistics if self.configuration.deterministic else []
        self.run_step = build_step_function(
            self.model, self.learning_rates.velocity_factors, setup.step_preparation(), in_step
        )

    @property
    def checkpoints(self) -> CheckpointWriter | None:
        """The writer of the checkpoints, on rank 0."""
        return self.steps.writer

    def train(self) -> dict[str, float]:
        """Run all remaining steps. Returns loss and metrics of the trained model.

        If the run cannot continue, all ranks raise the same JobError.
        """
        state, termination = self.state, self.setup.termination
        self.steps.restore_seeds()
        # No read after the last step: the process would wait for it at its end.
        count = -(-(state.total - state.position) // self.job_batch)
        batches = iter(self.setup.training_batches(state.position, state.streams, count))
        termination.set_training(True)
        try:
            if state.unvalidated is not None:
                self._steps_in_epoch = state.steps_in_last_epoch(self.job_batch)
                self._validate(state.unvalidated)
            while not self._is_finished():
                self._epoch(batches)
            metrics = self._metrics()
            self._check_weights()
            return metrics
        except tf.errors.OpError as error:
            raise data_error(error, self.setup.dataset.train) or error from error
        finally:
            self.steps.wait()

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
        self.learning_rates.set(state.position)
        logs: dict[str, Any] = self.run_step(self.setup.termination.wait_for(partial(next, batches)))
        self.steps.record_step()
        ends_epoch = state.position >= epoch_end
        updates_weights = self.steps.updates_weights
        is_round_due = self.coordination.record_step(state.step, logs["loss"])
        if is_round_due or ends_epoch or self.steps.is_due or self._is_finished():
            self._coordinate()
        if updates_weights and not self._is_compared:
            self._compare_ranks()
        if configuration.check_sync_every and state.step % configuration.check_sync_every == 0:
            self._check_sync()
        if self.reporter and not ends_epoch and self.reporter.is_due():
            self._report(mean_values(logs), state.epoch + 1, state.step_in_epoch(self.job_batch))
        if updates_weights and not ends_epoch:
            self._end_step()
        return logs

    def _end_step(self) -> None:
        """Terminate, write a checkpoint or commit after a step within an epoch."""
        if self.steps.stop_is_requested:
            self.steps.terminate()
        if self.steps.is_due:
            self.steps.write()
        if self.state.step % self.configuration.commit_steps == 0:
            self._commit()

    def _end_epoch(self, logs: dict[str, Any]) -> None:
        state = self.state
        state.unvalidated = metrics_over_ranks(self.model, logs, 1.0)
        if self.reporter:
            self.reporter.pause(state.position)
        self.steps.average_accumulated_gradients()
        self.steps.write()  # before the validation, which can be longer than the grace period of the pod
        if self.steps.stop_is_requested:
            self.steps.terminate()
        self._validate(state.unvalidated)
        self._commit()

    def _validate(self, metrics: dict[str, float]) -> None:
        state = self.state
        metrics = metrics | {f"val_{name}": value for name, value in self._metrics().items()}
        state.unvalidated = None
        update_best_epoch(self.model, state, metrics, self.configuration, self.setup.log)
        if self.reporter:
            self._report(metrics, state.epoch, self._steps_in_epoch)

    def _metrics(self) -> dict[str, float]:
        """Loss and metrics of the model in its current state."""
        self.steps.average_statistics()
        with averages_in_model(self.model):
            metrics = self.evaluation.metrics(self.state.position)
        if metrics is None:
            self.steps.terminate()
        if self.setup.dataset.damaged is not None:
            self.coordination.gather_damaged()
            self._check_damaged()
        return metrics

    def _coordinate(self) -> None:
        result = self.steps.exchange()
        if result.nonfinite_step is not None:
            ranks = self.coordination.rank_names(result.nonfinite_ranks)
            problem = f"the loss is not a number since step {result.nonfinite_step}, first on {ranks}"
            if self.configuration.on_nonfinite == "stop":
                raise NonFiniteLoss(f"{problem}; try a lower --learning-rate or --clip-norm 1 with --resume continue, "
                                    "or check the data of that step (--on-nonfinite continue ignores it)")  # fmt: skip
            if not self._nonfinite_is_logged:
                self._nonfinite_is_logged = True
                self.setup.log(f"Training continues although {problem}")
        self._check_damaged()

    def _check_weights(self) -> None:
        """Raise NonFiniteLoss on all ranks, which have the same weights, if there is no trained model."""
        if self.configuration.on_nonfinite != "stop":
            return
        try:
            check_finite(self.model.weights, [np.array(each) for each in self.model.weights])
        except NonFiniteValues as error:
            raise NonFiniteLoss(
                f"{error} after step {self.state.step}, although the loss is a number; check the data for values that "
                "are not numbers, or try a lower --learning-rate with --resume continue (--on-nonfinite continue "
                "ignores it)"
            ) from None

    def _report(self, metrics: dict[str, float], epoch: int, step: int) -> None:
        assert self.reporter is not None
        position = training_position(self.state, epoch, step, self._steps_in_epoch)
        best = best_values(self.model, self.state, self.configuration)
        self.reporter.report(position, metrics | self._damaged_metrics(), self.learning_rates.current, best)

    def _damaged_metrics(self) -> dict[str, float]:
        is_active = self.setup.dataset.damaged is not None
        return {"damaged_examples": float(len(self.coordination.damaged_names))} if is_active else {}

    def _check_damaged(self) -> None:
        """Log new damaged examples, and raise JobError if there are too many."""
        names, limit = self.coordination.damaged_names, self.configuration.skip_damaged
        for number, name in enumerate(names[self._damaged_logged :], self._damaged_logged + 1):
            self.setup.log(f"Skipped the damaged example {name} ({number} of at most {limit})")
        self._damaged_logged = len(names)
        if len(names) > limit:
            raise JobError(f"{len(names)} examples are damaged, the last one is {names[-1]}, and --skip-damaged allows "
                           f"{limit}; replace their files, or raise the number")  # fmt: skip

    def _check_sync(self) -> None:
        own = {id(variable) for variable in self.steps.moving_statistics}
        shared = [weight for weight in self.model.weights if id(weight) not in own]
        self._require_equal(different_ranks(shared))

    def _compare_ranks(self) -> None:
        """Compare the ranks after the first update, whose gradients are the first that can lack an average."""
        self._is_compared = True
        if self.size > 1:
            self._require_equal(diverged_ranks(self.model))

    def _require_equal(self, different: list[int]) -> None:
        if different:
            raise RanksDiffer(
                f"after step {self.state.step} the weights of {self.coordination.rank_names(different)} differ "
                "from those of the other ranks; a layer or an optimizer of the model changes them without averaging"
            )

    def _commit(self) -> None:
        if self.commit:
            self.steps.average_statistics()
            self.steps.record_seeds()
            self.commit()

    def _is_finished(self) -> bool:
        state = self.state
        return (
            state.stopped or state.position >= state.total or state.step >= (self.configuration.max_steps or math.inf)
        )

    _is_compared = _nonfinite_is_logged = False
    _steps_in_epoch = _damaged_logged = 0
