"""The training loop. Every rank performs the same sequence of collective operations."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import NonFiniteValues, check_finite
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.checkpoint.writer import WritePolicy
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.data.reading.example_reader import data_error
from horovodjob_trainer.errors import JobError, NonFiniteLoss, RanksDiffer
from horovodjob_trainer.hvd.exchange import is_concurrent
from horovodjob_trainer.reporting.metric_values import mean_values
from horovodjob_trainer.reporting.reporter import Reporter, TrainingPosition
from horovodjob_trainer.reporting.trackers import Tracker, default_name, plain_settings
from horovodjob_trainer.run.blocked_save import save_blocked
from horovodjob_trainer.run.coordination import Coordination, RoundResult, different_ranks, diverged_ranks
from horovodjob_trainer.run.metrics.best_epoch import best_values, update_best_epoch
from horovodjob_trainer.run.metrics.evaluation import Evaluation, metrics_over_ranks
from horovodjob_trainer.run.model_values import ModelValues
from horovodjob_trainer.run.optimization.optimizers import LearningRates
from horovodjob_trainer.run.optimization.weight_averages import averages_in_model
from horovodjob_trainer.run.ranks import log
from horovodjob_trainer.run.session import Session
from horovodjob_trainer.run.setup import Setup
from horovodjob_trainer.run.step import build_step_function


class Loop(Session):
    """Trains a model with the current ranks."""

    def __init__(
        self,
        setup: Setup,
        state: RunState,
        output: OutputDirectory | None,
        *,
        commit: Callable[[], None] | None = None,
    ) -> None:
        self.setup, self.commit = setup, commit
        self.configuration, self.model, self.size = setup.configuration, setup.model, hvd.size()
        self.learning_rates = LearningRates(setup.optimizers, self.configuration, state, self.size)
        values = ModelValues(
            self.model,
            [each.optimizer for each in setup.optimizers],
            state,
            # Rounding makes the statistics depend on the steps at which they are averaged, such as that of SIGTERM.
            averages_in_step=self.configuration.deterministic,
        )
        policy = WritePolicy(
            keep=self.configuration.keep_checkpoints,
            interval_seconds=self.configuration.checkpoint_seconds or math.inf,
            failure_seconds=self.configuration.checkpoint_failure_seconds,
            every_steps=self.configuration.checkpoint_steps,
        )
        super().__init__(
            values,
            self.configuration.batch_size * self.size,
            policy,
            output=output,
            reporter=_reporter(setup, output.run) if output is not None else None,
            termination=setup.termination,
            coordination=Coordination(setup.dataset.damaged),
        )
        if commit is None and (is_concurrent or self.size == 1):
            setup.termination.save_blocked = partial(save_blocked, self)
        self.evaluation = Evaluation(
            self.model,
            setup.dataset.test,
            setup.test_batches(),
            setup.test_preparation(),
            batch=self.configuration.validation_batch_size,
            termination=setup.termination,
        )
        in_step = self.values.moving_statistics if self.configuration.deterministic else []
        self.run_step = build_step_function(
            self.model, self.learning_rates.velocity_factors, setup.step_preparation(), in_step
        )

    @property
    def is_finished(self) -> bool:
        """Whether the run has no further step, also because of --max-steps."""
        return super().is_finished or self.state.step >= (self.configuration.max_steps or math.inf)

    def train(self) -> dict[str, float]:
        """Run all remaining steps. Returns loss and metrics of the trained model.

        If the run cannot continue, all ranks raise the same JobError.
        """
        state = self.state
        # No read after the last step: the process would wait for it at its end.
        count = -(-(state.total - state.position) // self.job_batch)
        batches = iter(self.setup.training_batches(state.position, state.streams, count))
        self.termination.set_training(True)
        try:
            if state.unvalidated is not None:
                self._validate(state.unvalidated)
            while not self.is_finished:
                self._epoch(batches)
            metrics = self._metrics()
            self._check_weights()
            return metrics
        except tf.errors.OpError as error:
            raise data_error(error, self.setup.dataset.train) or error from error
        finally:
            self.wait()

    def _epoch(self, batches: Iterator[Any]) -> None:
        state, epoch = self.state, self.state.epoch
        self.model.reset_metrics()
        self.begin_epoch()
        while state.epoch == epoch and not self.is_finished:
            self.learning_rates.set(state.position)
            logs = self.run_step(self.termination.wait_for(partial(next, batches)))
            self.end_step(partial(mean_values, logs), logs["loss"])
            if state.epoch == epoch and self.values.are_updated and state.step % self.configuration.commit_steps == 0:
                self._commit()
        if state.epoch > epoch:
            metrics = metrics_over_ranks(self.model, logs, 1.0)
            self.end_epoch(metrics)
            self._validate(metrics)
            self._commit()

    def _validate(self, metrics: dict[str, float]) -> None:
        metrics = metrics | {f"val_{name}": value for name, value in self._metrics().items()}
        update_best_epoch(self.model, self.state, metrics, self.configuration, log)
        self.end_validation(metrics)

    def _metrics(self) -> dict[str, float]:
        """Loss and metrics of the model in its current state."""
        self.values.average_statistics()
        with averages_in_model(self.model):
            metrics = self.evaluation.metrics(self.state.position)
        if metrics is None:
            self.terminate()
        if self.setup.dataset.damaged is not None:
            self.coordination.gather_damaged()
            self._check_damaged()
        return metrics

    def report(self, reporter: Reporter, position: TrainingPosition, metrics: Mapping[str, Any]) -> None:
        damaged = self.setup.dataset.damaged
        count = {} if damaged is None else {"damaged_examples": float(len(self.coordination.damaged_names))}
        best = best_values(self.model, self.state, self.configuration)
        reporter.report(position, {**metrics, **count}, self.learning_rates.current, best)

    def check_step(self) -> None:
        state, every_steps = self.state, self.configuration.check_sync_every
        if self.values.are_updated and not self._is_compared:
            self._compare_ranks()
        if every_steps and state.step % every_steps == 0:
            self._check_sync()

    def check_round(self, result: RoundResult) -> None:
        if result.nonfinite_step is not None:
            ranks = self.coordination.rank_names(result.nonfinite_ranks)
            problem = f"the loss is not a number since step {result.nonfinite_step}, first on {ranks}"
            if self.configuration.on_nonfinite == "stop":
                raise NonFiniteLoss(f"{problem}; try a lower --learning-rate or --clip-norm 1 with --resume continue, "
                                    "or check the data of that step (--on-nonfinite continue ignores it)")  # fmt: skip
            if not self._nonfinite_is_logged:
                self._nonfinite_is_logged = True
                log(f"Training continues although {problem}")
        self._check_damaged()

    def _check_weights(self) -> None:
        """Raise NonFiniteLoss if a weight is NaN or infinite: on all ranks, because they have the same weights."""
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

    def _check_damaged(self) -> None:
        """Log new damaged examples, and raise JobError if there are too many."""
        names, limit = self.coordination.damaged_names, self.configuration.skip_damaged
        for number, name in enumerate(names[self._damaged_logged :], self._damaged_logged + 1):
            log(f"Skipped the damaged example {name} ({number} of at most {limit})")
        self._damaged_logged = len(names)
        if len(names) > limit:
            raise JobError(f"{len(names)} examples are damaged, the last one is {names[-1]}, and --skip-damaged allows "
                           f"{limit}; replace their files, or raise the number")  # fmt: skip

    def _check_sync(self) -> None:
        own = {id(variable) for variable in self.values.moving_statistics}
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
            self.values.prepare_checkpoint()
            self.commit()

    _is_compared = _nonfinite_is_logged = False
    _damaged_logged = 0


def _reporter(setup: Setup, run: str) -> Reporter:
    configuration = setup.configuration
    return Reporter(
        directory=configuration.logs,
        ranks=hvd.size(),
        interval_seconds=configuration.log_seconds,
        log=log,
        unit="images" if setup.dataset.train.images else "samples",
        tensorboard=configuration.tensorboard,
        trackers=_trackers(configuration, run),
    )


def _trackers(configuration: Configuration, run: str) -> list[Tracker]:
    """The trackers of the settings. All attempts of the run with this identity are one run in each of them."""
    targets = {"mlflow": configuration.mlflow, "wandb": configuration.wandb}
    values = {each.name: getattr(configuration, each.name) for each in fields(configuration)}
    return [
        Tracker(kind, target, run=run, name=default_name(), settings=plain_settings(values))
        for kind, target in targets.items()
        if target is not None
    ]
