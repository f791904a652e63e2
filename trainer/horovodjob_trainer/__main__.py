"""`python -m horovodjob_trainer`: one rank of a training job."""

import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from typing import NoReturn

from horovodjob_trainer.configuration import Configuration, configuration
from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.launch import Launch

FAILED, WRONG_USAGE, TERMINATED = 1, 2, 128 + signal.SIGTERM
# mpirun ends the other ranks when one exits, so those with nothing to say leave rank 0 the time to speak.
YIELD_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    _end_on_sigterm()
    launch = Launch.from_environment(os.environ)
    try:
        with nullcontext() if launch.rank == 0 else redirect_stdout(io.StringIO()):  # one --help is enough
            run = configuration(sys.argv[1:] if arguments is None else arguments, world_size=launch.size)
    except UsageError as error:
        if launch.rank == 0:
            _complain(str(error))
        else:
            time.sleep(YIELD_SECONDS)
        sys.exit(WRONG_USAGE)
    _exit(_exit_code(run, launch))


def _exit_code(run: Configuration, launch: Launch) -> int:
    # 1 hides information, 2 also warnings; read when TensorFlow is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Shares often cannot lock; only rank 0 writes, under a name that nobody else opens.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        import absl.logging

        absl.logging.set_verbosity(absl.logging.ERROR)  # Keras calls .h5, which the tutorial writes, legacy
        from horovodjob_trainer import hvd, training

        hvd.init()
        try:
            training.train(run, launch)
        except training.JobError as error:
            if hvd.rank() == 0:
                _complain(str(error))
            hvd.allgather_object(None)  # all ranks know the sentence is out
            return FAILED
        hvd.shutdown()
    except Exception:
        sys.stderr.write(f"rank {launch.rank} of {launch.size} failed:\n{traceback.format_exc()}")
        return FAILED
    return 0


def _complain(sentence: str) -> None:
    print(f"horovodjob_trainer: {sentence}", file=sys.stderr, flush=True)


def _exit(code: int) -> NoReturn:
    """Ends this process, at once if it failed: an orderly end would wait for the other ranks."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code:
        os._exit(code)
    sys.exit(code)


def _end_on_sigterm() -> None:
    """Ends the process when SIGTERM comes, also while a collective operation waits for a rank that is gone."""
    # Blocked here, before any other thread exists, the signal is left to the thread that waits for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        _exit(TERMINATED)

    threading.Thread(target=wait, name="sigterm", daemon=True).start()


if __name__ == "__main__":
    main()
