"""A training run, the same on every rank: data, model, output directory, training loop and results."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer import data, hvd, models
from horovodjob_trainer.checkpoint.heartbeat import Heartbeat
from horovodjob_trainer.checkpoint.layout import training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, open_output_directory
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import JobError
from horovodjob_trainer.launch import Launch, hostname, threads_per_rank, usable_cores
from horovodjob_trainer.reporting.metric_values import without_elements
from horovodjob_trainer.reporting.progress_client import ProgressClient
from horovodjob_trainer.reporting.reporter import Reporter
from horovodjob_trainer.run.initial_weights import freeze_layers, load_initial_weights
from horovodjob_trainer.run.loop import Loop
from horovodjob_trainer.run.metrics.monitor import check_monitor
from horovodjob_trainer.run.optimization.compilation import compile_model
from horovodjob_trainer.run.optimization.learning_rate_schedule import scaling_factor
from horovodjob_trainer.run.optimization.optimizers import trained_optimizers
from horovodjob_trainer.run.ranks import call_on_all_ranks, configure_devices, loading_ranks, wait_for_all_ranks
from horovodjob_trainer.run.run_settings import run_settings
from horovodjob_trainer.run.saved_models import save_models
from horovodjob_trainer.run.setup import Setup
from horovodjob_trainer.run.termination import Termination


def train(configuration: Configuration, launch: Launch, termination: Termination) -> None:
    """Train as configured. Every rank of the job calls it once, after `hvd.init()`.

    If the run cannot continue, all ranks raise the same JobError.
    """
    setup = _setup(configuration, launch, termination)
    output, state = _initial_state(setup, launch)
    with _heartbeat(output):
        _train(setup, launch, output, state)


def _train(setup: Setup, launch: Launch, output: OutputDirectory | None, state: RunState) -> None:
    if launch.elastic:
        identity = {"run": output.run, "token": output.token} if output else {"run": None, "token": None}
        holder = hvd.elastic.KerasState(setup.model, setup.optimizers[0].optimizer, state=state, **identity)
        hvd.elastic.run(lambda shared: _train_elastic(setup, launch, shared))(holder)
    else:
        hvd.broadcast_variables(training_variables(setup.model), root_rank=0)
        reporter = _reporter(setup, launch)
        _train_to_end(setup, Loop(setup, state, output=output, reporter=reporter), output, launch)


def _train_elastic(setup: Setup, launch: Launch, shared: Any) -> None:
    """Train with the current ranks from their shared state. Horovod calls it again when the ranks change."""
    directory, model_name = setup.configuration.dir, setup.configuration.model_name
    output = OutputDirectory(directory, shared.run, model_name, shared.token) if hvd.rank() == 0 else None
    setup.log(f"Training with {_count(hvd.size(), 'rank')} after step {shared.state.step}")
    _log_learning_rate(setup)
    reporter = _reporter(setup, launch)
    loop = Loop(setup, shared.state, output=output, reporter=reporter, commit=shared.commit)
    with _heartbeat(output):  # rank 0 may be another process than at the start
        _train_to_end(setup, loop, output, launch)


@contextmanager
def _heartbeat(output: OutputDirectory | None) -> Iterator[None]:
    """Within this context, the run is active: a different job does not start in its directory."""
    heartbeat = None if output is None else Heartbeat(output.directory, output.token).start()
    try:
        yield
    finally:
        if heartbeat is not None:
            heartbeat.stop()


def _train_to_end(setup: Setup, loop: Loop, output: OutputDirectory | None, launch: Launch) -> None:
    """Run the loop to its end, save the model and print the test metrics."""
    is_done = False
    if loop.state.position < setup.configuration.warmup_epochs * loop.state.epoch_examples:
        unit = " times the schedule of the optimizer" if setup.optimizers[0].base_rate is None else ""
        setup.log(f"{loop.learning_rates.schedules[0].warmup_text(hvd.size())}{unit}")
    try:
        result = loop.train()
        setup.termination.set_training(True)  # after SIGTERM, the models have the grace period too
        call_on_all_ranks(lambda: save_models(setup, loop, output) if output is not None else None, launch)
        for name, value in sorted(without_elements(result).items(), key=lambda entry: entry[0] != "loss"):
            setup.log(f"Test {name}: {value:.4f}")
        is_done = True
    finally:
        if not is_done:
            setup.termination.set_training(False)
        if loop.reporter is not None:
            loop.reporter.close(done=is_done)
    wait_for_all_ranks()  # until then, the next attempt finds the last checkpoint
    if output is not None:
        output.finish()


def _setup(configuration: Configuration, launch: Launch, termination: Termination) -> Setup:
    threads = configuration.threads or threads_per_rank(launch, usable_cores())
    configure_devices(threads, launch)
    termination.grace_seconds = configuration.grace_seconds
    ranks = _count(hvd.size(), "rank")
    _log(f"Training {configuration.dataset} on {ranks} with {_count(threads, 'thread')} each")
    loading = loading_ranks(launch, _log)
    dataset = call_on_all_ranks(lambda: data.load_dataset(configuration.request(threads), loading), launch)
    _check_fingerprints(dataset, launch)
    _log(f"x_train shape: {(dataset.train.samples, *dataset.train.shape)}")
    _log(f"{dataset.train.samples} train samples")
    _log(f"{dataset.test.samples} test samples")
    if dataset.remark:
        _log(dataset.remark)
    _log("Using real-time data augmentation." if configuration.augment else "Not using data augmentation.")
    keras.utils.set_random_seed((configuration.seed + hvd.rank()) % 2**32)
    if configuration.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.config.set_dtype_policy(configuration.precision)
    shape, classes = dataset.train.shape, dataset.train.classes
    model = call_on_all_ranks(lambda: models.build_model(configuration.model, shape=shape, classes=classes), launch)
    was_compiled = model.compiled
    call_on_all_ranks(lambda: _prepare_model(model, configuration, shape, classes), launch)
    setup = Setup(configuration, dataset, model, (), threads, termination, _log)
    optimizers = trained_optimizers(
        model,
        configuration,
        was_compiled=was_compiled,
        batches=lambda: setup.training_batches(0, hvd.size()),
        prepare=setup.step_preparation(),
    )
    setup = replace(setup, optimizers=optimizers)
    if not launch.elastic:
        _log_learning_rate(setup)
    return setup


def _prepare_model(model: Any, configuration: Configuration, shape: tuple[int, ...], classes: int | None) -> None:
    if not model.built:  # a subclass of Model determines its shapes in the first call
        model(tf.zeros((1, *shape)))
    if configuration.init_from is not None and hvd.rank() == 0:  # the other ranks get the weights from rank 0
        _log(load_initial_weights(model, configuration.init_from))
    if configuration.freeze is not None:
        _log(freeze_layers(model, configuration.freeze))
    compile_model(model, configuration, classes)
    check_monitor(model, configuration)


def _log_learning_rate(setup: Setup) -> None:
    """Log how the learning rate depends on the number of ranks."""
    size, configuration = hvd.size(), setup.configuration
    for each in setup.optimizers if size > 1 else ():
        rate = "the schedule of the optimizer" if each.base_rate is None else f"{each.base_rate:g} of one rank"
        factor = scaling_factor(each.scaling, size)
        reason = f", the default for {each.name}" if configuration.learning_rate_scaling == "auto" else ""
        setup.log(f"Learning rate: {rate} times {factor:.4g} for {size} ranks ({each.scaling} scaling{reason})")


def _check_fingerprints(dataset: data.Dataset, launch: Launch) -> None:
    """Raise JobError if the ranks have different data, for example because a share lags on one node."""
    if launch.elastic:
        return
    fingerprints = hvd.allgather_object((dataset.fingerprint, hostname()))
    different = [(rank, *entry) for rank, entry in enumerate(fingerprints) if entry[0] != fingerprints[0][0]]
    if different:
        rank, fingerprint, host = different[0]
        raise JobError(
            f"rank {rank} on {host} has different data than rank 0 on {fingerprints[0][1]} ({fingerprint}; "
            f"{fingerprints[0][0]}): every node needs the same files below --data"
        )


def _initial_state(setup: Setup, launch: Launch) -> tuple[OutputDirectory | None, RunState]:
    """The output directory on rank 0, and the state from which all ranks start."""
    configuration, log = setup.configuration, setup.log
    settings = run_settings(configuration, setup.dataset.fingerprint)

    def opened() -> tuple[OutputDirectory | None, RunState | None]:
        if hvd.rank() != 0:
            return None, None
        directory, name, resume = configuration.dir, configuration.model_name, configuration.resume
        output = open_output_directory(directory, name, settings, launch=launch, resume=resume, log=log)
        return output, output.restore(training_variables(setup.model), log)

    output, checkpoint = call_on_all_ranks(opened, launch)
    state = _starting_state(setup, checkpoint, launch)
    # With elastic Horovod, other ranks may be long past this point; a new rank gets the state when it joins them.
    return output, state if launch.elastic else hvd.broadcast_object(state, root_rank=0)


def _starting_state(setup: Setup, checkpoint: RunState | None, launch: Launch) -> RunState:
    """The state of the checkpoint or of a new run."""
    configuration, size = setup.configuration, hvd.size()
    if checkpoint is None:
        if launch.attempt > 1:
            setup.log(f"Attempt {launch.attempt}: no checkpoint of this run yet, starting from the beginning")
        return RunState(epochs=configuration.epochs, epoch_examples=setup.dataset.train.samples, first_size=size)
    checkpoint.epochs = configuration.epochs
    if checkpoint.epoch_examples != setup.dataset.train.samples:
        checkpoint.use_data(setup.dataset.train.samples)
    step = checkpoint.step_in_epoch(configuration.batch_size * size)
    steps = f" and {_count(step, 'step')}" if step else ""
    setup.log(f"Attempt {launch.attempt}: resuming after epoch {checkpoint.epoch}{steps}")
    return checkpoint


def _reporter(setup: Setup, launch: Launch) -> Reporter | None:
    if hvd.rank() != 0:
        return None
    configuration = setup.configuration
    return Reporter(
        directory=configuration.logs,
        tensorboard=configuration.tensorboard,
        attempt=launch.attempt,
        ranks=hvd.size(),
        interval_seconds=configuration.log_seconds,
        progress_client=ProgressClient.from_environment(os.environ, setup.log),
        log=setup.log,
        plots=configuration.plots,
        unit="images" if setup.dataset.train.images else "samples",
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _log(text: str) -> None:
    if hvd.is_initialized() and hvd.rank() == 0:  # read each time: elastic Horovod assigns new ranks
        print(text, flush=True)
