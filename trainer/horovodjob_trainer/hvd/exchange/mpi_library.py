"""MPI for Python, or one process without it."""

from typing import Any


def _library() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):  # `selection` has found that there are no other ranks
        from horovodjob_trainer.hvd.exchange import single_rank

        return single_rank
    return MPI


MPI = _library()
