"""A training run, the same on every rank, with fixed ranks or with elastic Horovod."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, active
from horovodjob_trainer.checkpoint.program import TRAINER
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.reporting.metric_values import without_elements
from horovodjob_trainer.run.loop import Loop
from horovodjob_trainer.run.profiling import ProfiledSteps
from horovodjob_trainer.run.ranks import call_on_all_ranks, log, wait_for_all_ranks
from horovodjob_trainer.run.saved_models import save_models
from horovodjob_trainer.run.setup import Setup, counted, set_up
from horovodjob_trainer.run.start import initial_state
from horovodjob_trainer.run.termination import Termination
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.start import watched


def train(configuration: Configuration, launch: Launch, termination: Termination) -> None:
    """Train as configured. Every rank of the job calls it once, after `hvd.init()`.

    If the run cannot continue, all ranks raise the same JobError.
    """
    setup = set_up(configuration, launch, termination)
    output, state = initial_state(setup, launch)
    with active(output):
        _train(setup, launch, output, state)


def _train(setup: Setup, launch: Launch, output: OutputDirectory | None, state: RunState) -> None:
    if launch.elastic:
        identity = {"run": output.run, "token": output.token} if output else {"run": None, "token": None}
        holder = hvd.elastic.KerasState(setup.model, setup.optimizers[0].optimizer, state=state, **identity)
        hvd.elastic.run(lambda shared: _train_elastic(setup, launch, shared))(holder)
    else:
        hvd.broadcast_variables(training_variables(setup.model), root_rank=0)
        _train_to_end(setup, Loop(setup, state, output), output, launch)


def _train_elastic(setup: Setup, launch: Launch, shared: Any) -> None:
    """Train with the current ranks from their shared state. Horovod calls it again when the ranks change."""
    directory, model_name = setup.configuration.dir, setup.configuration.model_name
    output = OutputDirectory(directory, shared.run, model_name, shared.token, TRAINER) if hvd.rank() == 0 else None
    log(f"Training with {counted(hvd.size(), 'rank')} after step {shared.state.step}")
    setup.log_learning_rate()
    loop = Loop(setup, shared.state, output, commit=shared.commit)
    with active(output):  # rank 0 may be another process than at the start
        _train_to_end(setup, loop, output, launch)


def _train_to_end(setup: Setup, loop: Loop, output: OutputDirectory | None, launch: Launch) -> None:
    """Run the loop to its end, save the model and print the test metrics."""
    is_done = False
    if loop.state.position < setup.configuration.warmup_epochs * loop.state.epoch_examples:
        unit = " times the schedule of the optimizer" if setup.optimizers[0].base_rate is None else ""
        log(f"{loop.learning_rates.schedules[0].warmup_text(hvd.size())}{unit}")
    try:
        with watched(hvd):
            with _profile(setup, loop):
                result = loop.train()
            setup.termination.expect_pause()  # after SIGTERM, the models have the grace period too
            with ACTIVITY.section(Section.SAVING):
                call_on_all_ranks(lambda: save_models(setup, loop, output) if output is not None else None, launch)
        for name, value in sorted(without_elements(result).items(), key=lambda entry: entry[0] != "loss"):
            log(f"Test {name}: {value:.4f}")
        is_done = True
    finally:
        if not is_done:
            setup.termination.set_training(False)
        if loop.reporter is not None:
            loop.reporter.close(done=is_done)
    wait_for_all_ranks()  # until then, the next attempt finds the last checkpoint
    if output is not None:
        output.finish()


@contextmanager
def _profile(setup: Setup, loop: Loop) -> Iterator[None]:
    """Within this context, rank 0 profiles the steps of --profile-steps."""
    steps, directory = setup.configuration.profile_steps, setup.configuration.tensorboard
    if loop.reporter is None or steps is None or directory is None:
        yield
        return
    loop.run_step = profiled = ProfiledSteps(loop.run_step, steps, directory, before=loop.state.step, log=log)
    try:
        yield
    finally:
        profiled.close()
