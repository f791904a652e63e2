"""MPI for Python, or one process without it."""

from typing import Any

from horovodjob_trainer.hvd.exchange.selection import mpi_error


def _library() -> Any:
    if mpi_error():  # `selection` has found that there are no other ranks
        from horovodjob_trainer.hvd.exchange import single_rank

        return single_rank
    from mpi4py import MPI

    return MPI


MPI = _library()
