"""`python -m horovodjob_trainer`: one rank of a training job, or what comes after training."""

import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import NoReturn

from horovodjob_trainer.configuration import Configuration, configuration
from horovodjob_trainer.errors import TrainerError, UsageError
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.termination import Termination, leave

FAILED = 1
# mpirun ends the other ranks when one exits, so those with nothing to say leave rank 0 the time to speak.
YIELD_SECONDS = 10.0
AFTER_TRAINING = ("predict", "evaluate")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    arguments = sys.argv[1:] if arguments is None else arguments
    termination = Termination()
    termination.listen()
    _prepare_environment()
    if arguments and arguments[0] in AFTER_TRAINING:
        from horovodjob_trainer import inference

        leave(inference.main(arguments))
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):  # one --help is enough
            run = configuration(arguments, world_size=launch.size)
    except UsageError as error:
        if launch.rank == 0:
            _complain(error)
        else:
            time.sleep(YIELD_SECONDS)
        sys.exit(error.exit_code)
    leave(_exit_code(run, launch, termination))


def _exit_code(run: Configuration, launch: Launch, termination: Termination) -> int:
    if run.xla:
        _switch_xla_on()
    try:
        import absl.logging

        absl.logging.set_verbosity(absl.logging.ERROR)  # Keras calls .h5, which the tutorial writes, legacy
        from horovodjob_trainer import hvd, training

        hvd.init()
        try:
            training.train(run, launch, termination)
        except TrainerError as error:
            if hvd.rank() == 0:
                _complain(error)
            if not launch.elastic:
                training.wait_for_all_ranks()  # all ranks know the sentence is out
            return error.exit_code
        hvd.shutdown()
    except Exception:
        sys.stderr.write(f"rank {launch.rank} of {launch.size} failed:\n{traceback.format_exc()}")
        return FAILED
    return 0


def _prepare_environment() -> None:
    # 1 hides information, 2 also warnings; read when TensorFlow is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Shares often cannot lock; only rank 0 writes, under a name that nobody else opens.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    os.environ["KERAS_BACKEND"] = "tensorflow"


def _switch_xla_on() -> None:
    # XLA cannot compile an exchange: it gets the clusters of operations between them.
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} {flags}".strip()


def _complain(error: TrainerError) -> None:
    print(f"horovodjob_trainer: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
