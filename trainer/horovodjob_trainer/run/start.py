"""The output directory and the state from which a run starts: its last checkpoint, or the beginning."""

from functools import partial

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.checkpoint_file import training_variables
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, open_output_directory
from horovodjob_trainer.checkpoint.program import TRAINER
from horovodjob_trainer.checkpoint.run_selection import RunSettings
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.cli.configuration import Configuration
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.run.ranks import log
from horovodjob_trainer.run.session import open_run
from horovodjob_trainer.run.setup import Setup

# With other values, the variables or the order of the examples in a checkpoint would not be those of the run.
FIXED = ("dataset", "model", "init_from", "freeze", "normalize", "precision", "ema", "accumulate", "optimizer", "seed")
# The position in the data is a number of examples, and a changed rate or loss applies from the next step.
CHANGEABLE = (
    "batch_size", "momentum", "weight_decay", "learning_rate", "learning_rate_scaling", "schedule", "warmup_epochs",
    "warmup_from", "decay", "lr_steps", "lr_factor", "clip_norm", "label_smoothing", "task", "augment", "flip", "crop",
    "exif", "rand_augment", "mixup", "cutmix",
)  # fmt: skip


def initial_state(setup: Setup, launch: Launch) -> tuple[OutputDirectory | None, RunState]:
    """The output directory on rank 0, and the state from which all ranks start."""
    configuration = setup.configuration
    open_output = partial(
        open_output_directory,
        configuration.dir,
        configuration.model_name,
        _run_settings(configuration, setup.dataset.fingerprint),
        TRAINER,
        launch=launch,
        resume=configuration.resume,
        log=log,
    )
    output, checkpoint = open_run(open_output, training_variables(setup.model), launch)
    return output, _starting_state(setup, checkpoint, launch)


def _starting_state(setup: Setup, checkpoint: RunState | None, launch: Launch) -> RunState:
    """The state of the checkpoint or of a new run."""
    configuration, size = setup.configuration, hvd.size()
    if checkpoint is None:
        if launch.attempt > 1:
            log(f"Attempt {launch.attempt}: no checkpoint of this run yet, starting from the beginning")
        return RunState(epochs=configuration.epochs, epoch_examples=setup.dataset.train.samples, first_size=size)
    checkpoint.epochs = configuration.epochs
    if checkpoint.epoch_examples != setup.dataset.train.samples:
        checkpoint.use_data(setup.dataset.train.samples)
    place = checkpoint.place(configuration.batch_size * size)
    log(f"Attempt {launch.attempt}: resuming after {place}")
    return checkpoint


def _run_settings(configuration: Configuration, fingerprint: str) -> RunSettings:
    """The settings that define what a run trains, with the data of this fingerprint."""
    values = {name: getattr(configuration, name) for name in (*FIXED, *CHANGEABLE)}
    values["init_from"] = configuration.init_from and str(configuration.init_from)
    values["exif"] = configuration.exif if configuration.exif != "apply" else None  # unknown to older runs
    values["data"] = fingerprint
    return RunSettings(values, frozenset({*CHANGEABLE, "data"}))
