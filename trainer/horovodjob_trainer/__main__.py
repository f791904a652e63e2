"""`python -m horovodjob_trainer`: hears SIGTERM and sets the environment before any library is loaded."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from horovodjob_trainer.run.termination import Termination


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    termination = Termination()
    termination.listen()
    # TensorFlow's C++ log: 1 hides information, 2 also warnings, 3 also errors; what fails still raises.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Shares often cannot lock; only rank 0 writes, under a name that nobody else opens.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Not earlier: numpy starts threads, and one that was there before would not leave SIGTERM to the listener.
    from horovodjob_trainer.run import command

    command.run(sys.argv[1:] if arguments is None else arguments, termination)


if __name__ == "__main__":
    main()
