"""The parts of a run that do not depend on the number of ranks, and the input pipelines from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from horovodjob_trainer import hvd
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.run.augmentation import Augmentation
from horovodjob_trainer.run.optimization.loss import label_encoding
from horovodjob_trainer.run.optimization.optimizers import TrainedOptimizer
from horovodjob_trainer.run.pipeline import (
    batch_preparation,
    evaluation_batches,
    prepares_in_step,
    training_batches,
)
from horovodjob_trainer.run.step import as_it_is
from horovodjob_trainer.run.termination import Termination

SHIFT = 0.1  # share of the height and width of an image, in each direction


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts of a run that do not depend on the number of ranks."""

    configuration: Configuration
    dataset: Dataset
    model: Any
    optimizers: tuple[TrainedOptimizer, ...]
    threads: int
    termination: Termination
    log: Callable[[str], None]

    def training_batches(self, position: int, streams: int) -> Any:
        """The batches of this rank after the job has consumed `position` examples.

        `streams` is the number of ranks at the beginning of the epoch.
        """
        configuration = self.configuration
        return training_batches(
            self.dataset.train,
            batch=configuration.batch_size,
            rank=hvd.rank(),
            size=hvd.size(),
            seed=configuration.seed,
            position=position,
            threads=self.threads,
            window=self.dataset.window,
            streams=streams,
            crop=configuration.crop == "random",
            prepare=None if prepares_in_step() else self._training_preparation(),
        )

    def test_batches(self) -> Any:
        """The batches of this rank for an evaluation."""
        return evaluation_batches(
            self.dataset.test,
            batch=self.configuration.validation_batch_size,
            rank=hvd.rank(),
            size=hvd.size(),
            threads=self.threads,
        )

    def step_preparation(self) -> Callable[..., Any]:
        """The function with which the step makes examples and labels for the model of an element of its batches."""
        return self._training_preparation() if prepares_in_step() else as_it_is

    def _training_preparation(self) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        configuration = self.configuration
        shift = SHIFT if configuration.augment and configuration.crop == "center" else 0.0
        return batch_preparation(
            self.dataset.train,
            batch=configuration.batch_size,
            seed=configuration.seed,
            augment=Augmentation(shift=shift, flip=configuration.flip),
            encode=label_encoding(self.model, self.dataset.train.classes),
        )

    def test_preparation(self) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """The function that makes examples and labels for the model of an element of `test_batches`."""
        return batch_preparation(self.dataset.test, encode=label_encoding(self.model, self.dataset.train.classes))
