"""The run itself, the same on every rank: data, model, output directory, steps, result."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import tensorflow as tf

from horovodjob_trainer import data, hvd, models
from horovodjob_trainer.checkpoint.layout import variables_of
from horovodjob_trainer.checkpoint.output_directory import Output, opened_output
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.errors import JobError, TrainerError
from horovodjob_trainer.launch import Launch, hostname, threads_per_rank, usable_cores
from horovodjob_trainer.reporting.progress_client import Poster
from horovodjob_trainer.reporting.reporter import Reporter
from horovodjob_trainer.run.compilation import compiled
from horovodjob_trainer.run.loop import Loop, Setup
from horovodjob_trainer.run.termination import Termination

T = TypeVar("T")
# Settings that decide what is trained: an unfinished run goes on with the same ones only.
DECISIVE = (
    "dataset", "model", "precision", "batch_size", "accumulate", "optimizer", "learning_rate", "scale_learning_rate",
    "schedule", "warmup_epochs", "decay", "lr_steps", "lr_factor", "clip_norm", "label_smoothing", "seed", "augment",
    "flip",
)  # fmt: skip


def train(run: Configuration, launch: Launch, termination: Termination) -> None:
    """Trains as configured. Every rank of the job calls it once, after `hvd.init()`.

    Raises a JobError, the same on all ranks, where the run cannot go on.
    """
    setup = _setup(run, launch, termination)
    output, state = _begun(setup, launch)
    if launch.elastic:
        holder = hvd.elastic.KerasState(setup.model, state=state, run=output.run if output else None)
        hvd.elastic.run(lambda shared: _trained(setup, launch, shared))(holder)
    else:
        hvd.broadcast_variables(variables_of(setup.model), root_rank=0)
        _finished(setup, launch, Loop(setup, state, output=output, reporter=_reporter(setup, launch)), output)


def _trained(setup: Setup, launch: Launch, shared: Any) -> None:
    """Trains with the ranks that there are, from the state that they share; begins again when they change."""
    output = Output(setup.run.dir, shared.run, setup.run.model_name) if hvd.rank() == 0 else None
    setup.say(f"Training with {_count(hvd.size(), 'rank')} after step {shared.state.step}")
    reporter = _reporter(setup, launch)
    loop = Loop(setup, shared.state, output=output, reporter=reporter, commit=shared.commit)
    _finished(setup, launch, loop, output)


def _finished(setup: Setup, launch: Launch, loop: Loop, output: Output | None) -> None:
    """Trains to the end and leaves the result."""
    done = False
    try:
        loop.train()
        result = loop.result()
        if output is not None:
            output.save_models(setup.model, setup.say)
        for name, value in sorted(result.items(), key=lambda entry: entry[0] != "loss"):
            setup.say(f"Test {name}: {value:.4f}")
        done = True
    finally:
        if loop.reporter is not None:
            loop.reporter.close(done=done)
    wait_for_all_ranks()  # until then, an attempt after this one finds the last checkpoint
    if output is not None:
        output.finish()


def _setup(run: Configuration, launch: Launch, termination: Termination) -> Setup:
    threads = run.threads or threads_per_rank(launch, usable_cores())
    use_devices(threads)
    say = _say
    say(f"Training {run.dataset} on {_count(hvd.size(), 'rank')} with {_count(threads, 'thread')} each")
    dataset = on_all_ranks(lambda: data.opened(run.request(threads)), launch)
    _compare(dataset, launch)
    say(f"x_train shape: {(dataset.train.samples, *dataset.train.shape)}")
    say(f"{dataset.train.samples} train samples")
    say(f"{dataset.test.samples} test samples")
    if dataset.remark:
        say(dataset.remark)
    say("Using real-time data augmentation." if run.augment else "Not using data augmentation.")
    keras.utils.set_random_seed((run.seed + hvd.rank()) % 2**32)
    if run.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.config.set_dtype_policy(run.precision)
    shape, classes = dataset.train.shape, dataset.train.classes
    model = on_all_ranks(lambda: models.build(run.model, shape=shape, classes=classes), launch)
    base = float(model.optimizer.learning_rate) if model.compiled else run.learning_rate
    return Setup(run, dataset, compiled(model, run, shape, classes), base, threads, termination, say)


def _compare(dataset: data.Dataset, launch: Launch) -> None:
    """Refuses to train where the ranks see different data, as when a share lags on one node."""
    if launch.elastic:
        return
    seen = hvd.allgather_object((dataset.fingerprint, hostname()))
    others = [(rank, *found) for rank, found in enumerate(seen) if found[0] != seen[0][0]]
    if others:
        rank, fingerprint, host = others[0]
        raise JobError(
            f"rank {rank} on {host} sees other data than rank 0 on {seen[0][1]} ({fingerprint}; {seen[0][0]}): every "
            "node needs the same files below --data"
        )


def _begun(setup: Setup, launch: Launch) -> tuple[Output | None, RunState]:
    """Rank 0's output directory and the state to go on from, which all ranks get to know."""
    run, say = setup.run, setup.say
    settings = {name: getattr(run, name) for name in DECISIVE} | {"data": setup.dataset.fingerprint}
    begins = hvd.rank() == 0
    output = on_all_ranks(
        lambda: (
            opened_output(run.dir, run.model_name, settings, resume=run.resume == "auto", say=say) if begins else None
        ),
        launch,
    )
    found = output.restored(variables_of(setup.model), say) if output is not None else None
    state = _continued(setup, found, launch)
    # Under elastic Horovod a rank may join others that are long past this; it gets the state when it joins them.
    return output, state if launch.elastic else hvd.broadcast_object(state, root_rank=0)


def _continued(setup: Setup, found: RunState | None, launch: Launch) -> RunState:
    """The state found, or that of a run's first start; with other ranks than at first the epochs stay."""
    run, size = setup.run, hvd.size()
    if found is None:
        if launch.attempt > 1:
            setup.say(f"Attempt {launch.attempt}: no checkpoint of this run yet, starting from the beginning")
        steps = -(-setup.dataset.train.samples // run.batch_size)
        return RunState(epochs=run.epochs, epoch_examples=steps * run.batch_size * size, first_size=size)
    if size == found.first_size:
        found.epochs = run.epochs
    step = found.step_in_epoch(run.batch_size * size)
    inside = f" and {_count(step, 'step')}" if step else ""
    setup.say(f"Attempt {launch.attempt}: going on after epoch {found.epoch}{inside}")
    return found


def _reporter(setup: Setup, launch: Launch) -> Reporter | None:
    if hvd.rank() != 0:
        return None
    run = setup.run
    return Reporter(
        logs=run.logs,
        tensorboard=run.tensorboard,
        attempt=launch.attempt,
        ranks=hvd.size(),
        seconds=run.log_seconds,
        poster=Poster.from_environment(os.environ, setup.say),
        say=setup.say,
    )


def on_all_ranks(action: Callable[[], T], launch: Launch) -> T:
    """The action's value on this rank, if it succeeded on every rank; else the same JobError everywhere."""
    value, problem = None, None
    try:
        value = action()
    except TrainerError as error:
        problem = str(error)
    if launch.elastic:  # ranks that join later meet others that are past this
        if problem is not None:
            raise JobError(problem)
        return value  # type: ignore[return-value]
    problems = hvd.allgather_object(problem)
    met = [(rank, text) for rank, text in enumerate(problems) if text is not None]
    if met:
        rank, text = met[0]
        raise JobError(text if len(met) == len(problems) or rank == 0 else f"rank {rank}: {text}")
    return value  # type: ignore[return-value]


def wait_for_all_ranks() -> None:
    """Returns when every rank has come here."""
    hvd.allgather_object(None)


def use_devices(threads: int) -> None:
    """Gives this rank its threads and, where the node has GPUs, the one of its local rank with memory as needed."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _say(text: str) -> None:
    if hvd.is_initialized() and hvd.rank() == 0:  # asked each time: elastic Horovod gives ranks new numbers
        print(text, flush=True)
