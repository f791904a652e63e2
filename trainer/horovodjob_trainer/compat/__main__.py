"""`python -m horovodjob_trainer.compat`: one rank of a job that runs a script of 2018."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

# Read by the import hook for stock Horovod: on Keras 2, Horovod's own code is right.
os.environ["HOROVODJOB_STOCK_HOROVOD"] = "1"

from horovodjob_trainer.compat import script
from horovodjob_trainer.compat.options import PROGRAM, Options, options
from horovodjob_trainer.errors import TrainerError, UsageError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores

FAILED, WRONG_USAGE = 1, 2
# mpirun ends the other ranks when one exits: what all have to say, rank 0 says, and the others give it the time.
YIELD_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the script that the command line names, and ends the process where it fails."""
    launch = Launch.from_environment(os.environ)
    try:
        given = options(sys.argv[1:] if arguments is None else arguments, os.environ)
        program = script.read(given.script)
    except UsageError as error:
        _give_up(error, WRONG_USAGE, launch)
    _install(given, launch)
    try:
        program.run(given.arguments)
    except TrainerError as error:
        _give_up(error, FAILED, launch)
    except Exception as error:
        error = error.with_traceback(program.traceback_of(error))
        sys.excepthook(type(error), error, error.__traceback__)
        _exit(FAILED)


def _install(given: Options, launch: Launch) -> None:
    # 1 hides information, 2 also warnings; read when TensorFlow is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Shares often cannot lock.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    from horovodjob_trainer.compat import keras2

    keras2.install()
    from horovodjob_trainer.compat import datasets, patches, tensorflow1

    say_once = _say if launch.rank == 0 else _silence
    tensorflow1.install(given.threads or threads_per_rank(launch, usable_cores()), say_once)
    datasets.install(given.data)
    if given.max_epochs is not None:
        patches.cap_epochs(given.max_epochs)
    if not given.as_is:
        patches.pass_forgotten_callbacks(say_once)
        patches.save_on_rank_0(launch, _say)
        patches.tolerate_other_ranks_directories(launch, _say)


def _give_up(error: Exception, code: int, launch: Launch) -> NoReturn:
    if launch.rank != 0:
        time.sleep(YIELD_SECONDS)
    _say(str(error))
    _exit(code)


def _exit(code: int) -> NoReturn:
    """Ends this process at once: an orderly end would wait for the other ranks."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _say(sentence: str) -> None:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr, flush=True)


def _silence(sentence: str) -> None:
    pass


if __name__ == "__main__":
    main()
