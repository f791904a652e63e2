"""`python -m horovodjob_trainer`: handles SIGTERM and sets the environment before it imports any library."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from horovodjob_trainer.run.termination import Termination


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    termination = Termination()
    termination.listen()
    # The C++ log of TensorFlow: 1 hides information, 2 also warnings, 3 also errors. Failures still raise exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # Shares often do not support locks. Only rank 0 writes, to a name that no other process opens.
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # Imported after listen(): numpy starts threads, and an earlier thread would not have SIGTERM blocked.
    from horovodjob_trainer.run import command

    command.run(sys.argv[1:] if arguments is None else arguments, termination)


if __name__ == "__main__":
    main()
