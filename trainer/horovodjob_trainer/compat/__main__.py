"""`python -m horovodjob_trainer.compat`: one rank of a job that runs a script of 2018."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

# Disables the import hook: with Keras 2, the code of Horovod itself is correct.
os.environ["HOROVODJOB_STOCK_HOROVOD"] = "1"

from horovodjob_trainer.allocator import keep_freed_memory
from horovodjob_trainer.compat import script
from horovodjob_trainer.compat.options import PROGRAM, Options, parse_options
from horovodjob_trainer.errors import TrainerError, UsageError
from horovodjob_trainer.launch import Launch, threads_per_rank, usable_cores

FAILED, INVALID_USAGE = 1, 2
# mpirun ends the other ranks when one exits. The other ranks wait, so that rank 0 can print the error of all ranks.
ERROR_DELAY_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script on the command line. If it fails, end the process."""
    launch = Launch.from_environment(os.environ)
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments, os.environ)
        program = script.read_script(options.script)
    except UsageError as error:
        _exit_with_error(error, INVALID_USAGE, launch)
    _install(options, launch)
    try:
        program.run(options.arguments)
    except TrainerError as error:
        _exit_with_error(error, FAILED, launch)
    except Exception as error:
        error = error.with_traceback(program.traceback(error))
        sys.excepthook(type(error), error, error.__traceback__)
        _exit(FAILED)


def _install(options: Options, launch: Launch) -> None:
    keep_freed_memory()
    # TensorFlow reads it during its import: 1 hides information, 2 also warnings.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Shares often do not support locks.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    from horovodjob_trainer.compat import keras2

    keras2.install()
    from horovodjob_trainer.compat import datasets, patches, tensorflow1, watch

    log_on_rank_0 = _log if launch.rank == 0 else _discard
    tensorflow1.install(options.threads or threads_per_rank(launch, usable_cores()), log_on_rank_0)
    datasets.install(options.data)
    if options.max_epochs is not None:
        patches.limit_epochs(options.max_epochs)
    if launch.rank == 0:
        patches.report_progress(launch)
    watch.watch_trainings(launch)
    if not options.as_is:
        patches.pass_unused_callbacks(log_on_rank_0)
        patches.save_on_rank_0(launch, _log)
        patches.accept_existing_directories(launch, _log)


def _exit_with_error(error: Exception, code: int, launch: Launch) -> NoReturn:
    if launch.rank != 0:
        time.sleep(ERROR_DELAY_SECONDS)
    _log(str(error))
    _exit(code)


def _exit(code: int) -> NoReturn:
    """End this process at once. An orderly exit would wait for the other ranks."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _log(sentence: str) -> None:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr, flush=True)


def _discard(sentence: str) -> None:
    pass


if __name__ == "__main__":
    main()
