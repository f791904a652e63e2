"""The start of a script's run: it is the same on all ranks, and has the state and the settings of its directory."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from horovodjob_trainer import hvd
from horovodjob_trainer.checkpoint.output_directory import OutputDirectory, open_output_directory
from horovodjob_trainer.checkpoint.program import SCRIPT
from horovodjob_trainer.checkpoint.run_file import read_run_file
from horovodjob_trainer.checkpoint.run_selection import RunSettings
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.errors import JobError, OutputError
from horovodjob_trainer.hvd.uneven_steps import step_difference
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.run.ranks import log
from horovodjob_trainer.run.scripts.batches import ARRAYS, Batches
from horovodjob_trainer.run.scripts.options import RunOptions
from horovodjob_trainer.run.session import open_run

PROGRAM = "script"
SETTABLE = ("dynamic_scale", "learning_rate")  # the variables of optimizers that are settings of the script


def compare_ranks(options: RunOptions, batches: Batches, epochs: int) -> None:
    """Raise JobError on all ranks if they would not have the same steps."""
    own = {**batches.common, "epochs": epochs, "every_steps": options.every_steps}
    ranks = hvd.allgather_object(own, name="run_settings")
    if difference := step_difference([each.get("steps per epoch") for each in ranks]):
        raise JobError(f"{difference}; every step needs all ranks, so give all ranks the same number of steps")
    for rank, other in enumerate(ranks):
        for name in {**ranks[0], **other}:
            values = ranks[0].get(name), other.get(name)
            if values[0] == values[1]:
                continue
            if name == ARRAYS:
                raise JobError(f"rank {rank} has other {ARRAYS} than rank 0: pass the same ones on all ranks, "
                               "for example from sorted lists of files")  # fmt: skip
            raise JobError(f"rank 0 has {name} {values[0]} and rank {rank} has {values[1]}; every step needs all "
                           "ranks, so give all ranks the same")  # fmt: skip


def start(
    options: RunOptions, batches: Batches, optimizers: Sequence[Any], variables: Sequence[Any], epochs: int
) -> tuple[OutputDirectory | None, RunState]:
    """The output directory, on rank 0, and the state of the run. Every rank calls it; all raise the same JobError."""
    launch = Launch.from_environment(os.environ)
    values = {**options.settings, **batches.settings, "program": PROGRAM}
    settings = RunSettings(values, frozenset(options.settings))

    def open_output() -> OutputDirectory:
        if options.resume != "never":
            _check_program(options.directory)
        return open_output_directory(
            options.directory, "", settings, SCRIPT, launch=launch, resume=options.resume, log=log
        )

    # An optimizer that scales the loss has a learning rate without effect before that of the optimizer in it.
    named = [{each.name: each for each in optimizer.variables} for optimizer in optimizers]
    settable = [each.get(name) for each in named for name in SETTABLE]
    rates = [None if each is None else float(each.value) for each in settable]
    output, state = open_run(open_output, variables, launch)
    if state is None:
        state = RunState(epochs=epochs, epoch_examples=batches.epoch_examples, first_size=hvd.size())
        state.rates = rates
        return output, state
    if output is not None:  # the other ranks get the variables of rank 0
        _use_changed_rates(settable, rates, state)
    state.stopped &= epochs <= state.epochs  # more epochs continue a run that a callback has ended
    state.epochs, state.rates = epochs, rates
    log(f"Resuming the run in {options.directory} after {state.place(batches.job_batch)}")
    return output, state


def _use_changed_rates(variables: Sequence[Any], rates: Sequence[float | None], state: RunState) -> None:
    """Let those learning rates count that the script has changed since the last start; the others are those of the run.

    With another number of ranks, a rate that depends on it keeps what callbacks have made of it.
    """
    for variable, rate, earlier in zip(variables, rates, state.rates, strict=False):
        if (rate is None) != (earlier is None):
            log("The learning rate of the script is now a schedule or was one before: the run continues with that of "
                "the script")  # fmt: skip
        elif rate is not None and earlier is not None and rate != earlier:
            restored = float(variable.value)
            is_scaled = len(state.order) != hvd.size() and earlier
            variable.assign(restored * (rate / earlier) if is_scaled else rate)
            name = variable.name.replace("_", " ")
            log(f"The {name} of the script is now {rate:g}, before it was {earlier:g}: the run continues with "
                f"{float(variable.value):g}")  # fmt: skip


def _check_program(directory: Path) -> None:
    with suppress(ValueError, OSError):  # a damaged file is reported when the directory is opened
        stored = read_run_file(directory)
        if stored is not None and stored.settings.get("program") != PROGRAM:
            raise OutputError(f"{directory} contains the unfinished run of another program: use another directory, or "
                              f"{SCRIPT.resume_never} for a new run, which keeps its checkpoints")  # fmt: skip
