"""The command `python -m horovodjob_trainer`: one rank of a training job, of an evaluation or of a prediction."""

import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import NoReturn

from horovodjob_trainer.cli.configuration import Configuration, load_configuration
from horovodjob_trainer.errors import JobError, TrainerError, UsageError
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.run import garbage_collection
from horovodjob_trainer.run.termination import Termination, exit_process
from horovodjob_trainer.watch.activity import ACTIVITY
from horovodjob_trainer.watch.start import watch_start

FAILED = 1
# mpirun ends the other ranks when one exits. Ranks that print nothing wait, so that rank 0 can print the error.
USAGE_ERROR_DELAY_SECONDS = 10.0
INFERENCE_COMMANDS = ("predict", "evaluate", "export")


def run(arguments: Sequence[str], termination: Termination) -> NoReturn:
    """Run the command and end the process with the exit code that `--help` describes."""
    if arguments and arguments[0] in INFERENCE_COMMANDS:
        from horovodjob_trainer.run.inference import command as inference

        exit_process(inference.main(arguments))
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):  # only rank 0 prints --help
            configuration = load_configuration(arguments)
        if not launch.elastic:  # whose ranks join at different times
            watch_start(launch.rank)
    except UsageError as error:
        if launch.rank == 0:
            _print_error(error)
        else:
            time.sleep(USAGE_ERROR_DELAY_SECONDS)
        sys.exit(error.exit_code)
    exit_process(_train(configuration, launch, termination))


def _train(configuration: Configuration, launch: Launch, termination: Termination) -> int:
    if configuration.xla:
        _enable_xla()
    if configuration.deterministic and os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "2":
        # When TensorFlow makes an input pipeline deterministic, it logs the result of its own rewriting as an error.
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if configuration.deterministic:
        # Which buckets of gradients Horovod fuses depends on time, and so does the order of additions.
        os.environ["HOROVOD_DISABLE_GROUP_FUSION"] = "1"
    if launch.elastic:
        # When ranks join, Horovod 0.28.1 overwrites the fusion threshold of the earlier ranks if the cycle time is set.
        os.environ.pop("HOROVOD_CYCLE_TIME", None)
    try:
        with garbage_collection.paused():
            import absl.logging

            absl.logging.set_verbosity(absl.logging.ERROR)  # Keras warns that .h5, which the tutorial writes, is legacy
            from horovodjob_trainer import hvd
            from horovodjob_trainer.run import ranks, training

        with ACTIVITY.exchange():  # it waits for all ranks
            hvd.init()
        try:
            training.train(configuration, launch, termination)
        except JobError as error:
            if hvd.rank() == 0:
                _print_error(error)
            if not launch.elastic:
                ranks.wait_for_all_ranks()  # until rank 0 has printed the error
            return error.exit_code
        except TrainerError as error:  # an error of this rank alone
            _print_error(error, f"rank {hvd.rank()}: " if hvd.rank() else "")
            return error.exit_code
        hvd.shutdown()
    except Exception:
        sys.stderr.write(f"rank {launch.rank} of {launch.size} failed:\n{traceback.format_exc()}")
        return FAILED
    return 0


def _enable_xla() -> None:
    # XLA cannot compile an allreduce. It compiles the clusters of operations between them.
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} {flags}".strip()


def _print_error(error: TrainerError, prefix: str = "") -> None:
    print(f"horovodjob_trainer: {prefix}{error}", file=sys.stderr, flush=True)
