"""MPI for Python, or one process without it."""

try:
    from mpi4py import MPI
except (ImportError, RuntimeError):  # `selection` has found that there are no other ranks
    from horovodjob_trainer.hvd.exchange import single_rank as MPI

__all__ = ["MPI"]
