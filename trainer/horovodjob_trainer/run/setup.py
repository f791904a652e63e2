"""The parts of a run that do not depend on the number of ranks: settings, data, model and their input pipelines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer import hvd, models
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.data import Elements, load_dataset
from horovodjob_trainer.data.order import Steps
from horovodjob_trainer.data.reading.augmentation import Augmentation
from horovodjob_trainer.data.source import Dataset, Source
from horovodjob_trainer.errors import DataError, JobError
from horovodjob_trainer.launch import Launch, hostname, threads_per_rank, usable_cores
from horovodjob_trainer.run.augmentation import batch_mixing
from horovodjob_trainer.run.initial_weights import freeze_layers, load_initial_weights
from horovodjob_trainer.run.metrics.best_epoch import check_monitor
from horovodjob_trainer.run.optimization.compilation import compile_model
from horovodjob_trainer.run.optimization.learning_rate_schedule import scaling_factor
from horovodjob_trainer.run.optimization.loss import label_encoding
from horovodjob_trainer.run.optimization.optimizers import TrainedOptimizer, trained_optimizers
from horovodjob_trainer.run.optimization.task import check_default_loss, check_fit
from horovodjob_trainer.run.pipeline import (
    batch_preparation,
    evaluation_batches,
    prepares_in_step,
    training_batches,
)
from horovodjob_trainer.run.precision import dtype_policy
from horovodjob_trainer.run.ranks import call_on_all_ranks, configure_devices, loading_ranks, log
from horovodjob_trainer.run.step import as_it_is
from horovodjob_trainer.run.termination import Termination
from horovodjob_trainer.watch.start import watch_setup

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

    def training_batches(self, position: int, streams: int, count: int | None = None) -> Any:
        """The batches of this rank after the job has consumed `position` examples: `count`, or without end.

        `streams` is the number of ranks at the beginning of the epoch.
        """
        configuration = self.configuration
        steps = Steps(
            batch=configuration.batch_size,
            seed=configuration.seed,
            rank=hvd.rank(),
            size=hvd.size(),
            position=position,
            window=self.dataset.window,
            streams=streams,
            count=count,
        )
        return training_batches(
            self.dataset.train,
            steps,
            threads=self.threads,
            crop=configuration.crop == "random",
            rand_augment=configuration.rand_augment,
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
        """The function with which the step prepares a batch. It does nothing if the input pipeline has prepared it."""
        return self._training_preparation() if prepares_in_step() else as_it_is

    def _training_preparation(self) -> Callable[..., tuple[Any, ...]]:
        configuration = self.configuration
        shift = SHIFT if configuration.augment and configuration.crop == "center" else 0.0
        return batch_preparation(
            self.dataset.train,
            batch=configuration.batch_size,
            seed=configuration.seed,
            augment=Augmentation(shift=shift, flip=configuration.flip),
            encode=label_encoding(self.model, self.dataset.train.classes),
            mix=batch_mixing(mixup=configuration.mixup, cutmix=configuration.cutmix, seed=configuration.seed),
        )

    def test_preparation(self) -> Callable[..., tuple[Any, ...]]:
        """The function that makes examples and labels for the model of an element of `test_batches`."""
        return batch_preparation(self.dataset.test, encode=label_encoding(self.model, self.dataset.train.classes))

    def log_learning_rate(self) -> None:
        """Log how the learning rate depends on the number of ranks."""
        size, configuration = hvd.size(), self.configuration
        for each in self.optimizers if size > 1 else ():
            rate = "the schedule of the optimizer" if each.base_rate is None else f"{each.base_rate:g} of one rank"
            factor = scaling_factor(each.scaling, size)
            reason = f", the default for {each.name}" if configuration.learning_rate_scaling == "auto" else ""
            log(f"Learning rate: {rate} times {factor:.4g} for {size} ranks ({each.scaling} scaling{reason})")


def set_up(configuration: Configuration, launch: Launch, termination: Termination) -> Setup:
    """The parts of the run that the configuration describes. Every rank of the job calls it once, after `hvd.init()`.

    If a part is invalid, all ranks raise the same JobError.
    """
    threads = configuration.threads or threads_per_rank(launch, usable_cores())
    configure_devices(threads, launch)
    watch_setup(hvd)
    termination.grace_seconds = configuration.grace_seconds
    ranks = counted(hvd.size(), "rank")
    log(f"Training {configuration.dataset} on {ranks} with {counted(threads, 'thread')} each")
    loading = loading_ranks(launch, log)
    dataset = call_on_all_ranks(lambda: load_dataset(configuration.request(threads), loading), launch)
    _check_fingerprints(dataset, launch)
    shape = dataset.train.shape
    log(f"x_train shape: {(dataset.train.samples, *shape) if isinstance(shape, tuple) else shape}")
    log(f"{dataset.train.samples} train samples")
    log(f"{dataset.test.samples} test samples")
    if dataset.remark:
        log(dataset.remark)
    augments = configuration.augment and dataset.train.images
    log("Using real-time data augmentation." if augments else "Not using data augmentation.")
    keras.utils.set_random_seed((configuration.seed + hvd.rank()) % 2**32)
    if configuration.deterministic:
        tf.config.experimental.enable_op_determinism()
    configuration = replace(configuration, precision=dtype_policy(configuration.precision, configuration.model, launch))
    keras.config.set_dtype_policy(configuration.precision)
    if configuration.precision != "float32":
        log(f"Dtype policy: {configuration.precision} (--precision float32 for none)")
    shape, classes = dataset.train.shape, dataset.train.classes
    model = call_on_all_ranks(
        lambda: models.build_model(
            configuration.model, shape=shape, classes=classes, normalize=configuration.normalize
        ),
        launch,
    )
    was_compiled = model.compiled
    call_on_all_ranks(lambda: _prepare_model(model, configuration, dataset.train), launch)
    setup = Setup(configuration, dataset, model, (), threads, termination)
    call_on_all_ranks(lambda: _check_task(setup, was_compiled=was_compiled), launch)
    optimizers = trained_optimizers(
        model,
        configuration,
        was_compiled=was_compiled,
        batches=lambda: setup.training_batches(0, hvd.size()),
        prepare=setup.step_preparation(),
    )
    setup = replace(setup, optimizers=optimizers)
    if not launch.elastic:
        setup.log_learning_rate()
    return setup


def counted(number: int, noun: str) -> str:
    """The number with its noun, for messages."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _prepare_model(model: Any, configuration: Configuration, source: Source) -> None:
    for setting in ("rand_augment", "mixup", "cutmix"):
        if getattr(configuration, setting) is not None and not source.images:
            option = setting.replace("_", "-")
            raise DataError(f"--{option} needs images, and the data has examples of shape {source.shape}; remove it")
    if not model.built:  # a subclass of Model determines its shapes in the first call
        model(_zeros(source))
    if configuration.init_from is not None and hvd.rank() == 0:  # the other ranks get the weights from rank 0
        log(load_initial_weights(model, configuration.init_from))
    if configuration.freeze is not None:
        log(freeze_layers(model, configuration.freeze))
    compile_model(model, configuration, source.classes)
    check_monitor(model, configuration)


def _zeros(source: Source) -> Any:
    """A batch of one example."""
    if isinstance(source, Elements):
        return tf.nest.map_structure(lambda part: tf.zeros((1, *part.shape), part.dtype), source.spec[0])
    return tf.zeros((1, *source.shape))


def _check_task(setup: Setup, *, was_compiled: bool) -> None:
    """Raise ModelError if the data of the user or the task of the user do not fit the model."""
    source, task = setup.dataset.train, setup.configuration.task
    if isinstance(source, Elements) and not was_compiled and task is None:
        check_default_loss(source.spec)
    if isinstance(source, Elements) or task is not None:
        check_fit(setup.model, setup.test_batches().element_spec, setup.test_preparation())


def _check_fingerprints(dataset: Dataset, launch: Launch) -> None:
    """Raise JobError if the ranks have different data, for example because a share lags on one node."""
    if launch.elastic:
        return
    fingerprints = hvd.allgather_object((dataset.fingerprint, hostname()))
    different = [(rank, *entry) for rank, entry in enumerate(fingerprints) if entry[0] != fingerprints[0][0]]
    if different:
        rank, fingerprint, host = different[0]
        raise JobError(
            f"rank {rank} on {host} has different data than rank 0 on {fingerprints[0][1]} ({fingerprint}; "
            f"{fingerprints[0][0]}): every node needs the same files below --data, and a function must return the "
            "same examples on every rank"
        )
