"""What the command line asks for: one rank of a training job, or what comes after training."""

import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import NoReturn

from horovodjob_trainer.cli.configuration import Configuration, configuration
from horovodjob_trainer.errors import JobError, TrainerError, UsageError
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.run.termination import Termination, leave

FAILED = 1
# mpirun ends the other ranks when one exits, so those with nothing to say leave rank 0 the time to speak.
YIELD_SECONDS = 10.0
AFTER_TRAINING = ("predict", "evaluate")


def run(arguments: Sequence[str], termination: Termination) -> NoReturn:
    """Does it, and ends the process with the exit code that `--help` explains."""
    if arguments and arguments[0] in AFTER_TRAINING:
        from horovodjob_trainer.run import inference

        leave(inference.main(arguments))
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):  # one --help is enough
            wanted = configuration(arguments, world_size=launch.size)
    except UsageError as error:
        if launch.rank == 0:
            _complain(error)
        else:
            time.sleep(YIELD_SECONDS)
        sys.exit(error.exit_code)
    leave(_exit_code(wanted, launch, termination))


def _exit_code(run: Configuration, launch: Launch, termination: Termination) -> int:
    if run.xla:
        _switch_xla_on()
    if run.deterministic and os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "2":
        # Making an input pipeline deterministic, TensorFlow logs as an error what its own rewriting left behind.
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    try:
        import absl.logging

        absl.logging.set_verbosity(absl.logging.ERROR)  # Keras calls .h5, which the tutorial writes, legacy
        from horovodjob_trainer import hvd
        from horovodjob_trainer.run import training

        hvd.init()
        try:
            training.train(run, launch, termination)
        except JobError as error:
            if hvd.rank() == 0:
                _complain(error)
            if not launch.elastic:
                training.wait_for_all_ranks()  # all ranks know the sentence is out
            return error.exit_code
        except TrainerError as error:  # this rank's own
            _complain(error, f"rank {hvd.rank()}: " if hvd.rank() else "")
            return error.exit_code
        hvd.shutdown()
    except Exception:
        sys.stderr.write(f"rank {launch.rank} of {launch.size} failed:\n{traceback.format_exc()}")
        return FAILED
    return 0


def _switch_xla_on() -> None:
    # XLA cannot compile an exchange: it gets the clusters of operations between them.
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} {flags}".strip()


def _complain(error: TrainerError, who: str = "") -> None:
    print(f"horovodjob_trainer: {who}{error}", file=sys.stderr, flush=True)
