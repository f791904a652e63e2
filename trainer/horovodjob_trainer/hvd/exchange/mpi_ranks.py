"""The ranks of a job under mpirun, with the functions of Horovod."""

import os
from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.exchange import selection
from horovodjob_trainer.launch import Launch


def _mpi() -> Any:
    """MPI for Python, or one process without it."""
    if selection.mpi_error():  # `selection` has found that there are no other ranks
        from horovodjob_trainer.hvd.exchange import single_rank

        return single_rank
    from mpi4py import MPI

    return MPI


MPI = _mpi()
COMM = MPI.COMM_WORLD
_state: dict[str, Any] = {}


def init(*_: Any, **__: Any) -> None:
    """Find the ranks of this node. Every rank calls it."""
    started = Launch.from_environment(os.environ).size
    if started > COMM.Get_size():  # each process would train alone
        selection.end(
            f"{started} ranks were started, and the MPI library of mpi4py connects {COMM.Get_size()}: start them "
            f"with the mpirun of this library, {MPI.Get_library_version().partition(',')[0]}"
        )
    local = COMM.Split_type(MPI.COMM_TYPE_SHARED)
    _state.update(rank=COMM.Get_rank(), size=COMM.Get_size(), local_rank=local.Get_rank(), local_size=local.Get_size())
    _state.update(local_ranks=COMM.allgather(local_rank()), local_sizes=COMM.allgather(local_size()))


def shutdown() -> None:
    """Forget the ranks. MPI ends with the process."""
    _state.clear()


def is_initialized() -> bool:
    """Whether `init` was called."""
    return "rank" in _state


def rank() -> int:
    """The number of this process in the job."""
    return _number("rank")


def size() -> int:
    """The number of processes of the job."""
    return _number("size")


def local_rank() -> int:
    """The number of this process on its node."""
    return _number("local_rank")


def local_size() -> int:
    """The number of processes on this node."""
    return _number("local_size")


def cross_rank() -> int:
    """The number of this node among those with as many processes."""
    return int(_state["local_ranks"][: rank()].count(local_rank()))


def cross_size() -> int:
    """The number of nodes with a process of this local rank."""
    return int(_state["local_ranks"].count(local_rank()))


def is_homogeneous() -> bool:
    """Whether all nodes have the same number of processes."""
    return len(set(_state["local_sizes"])) == 1


def rank_op(**_: Any) -> Any:
    """`rank` as a tensor."""
    return tf.constant(rank())


def size_op(**_: Any) -> Any:
    """`size` as a tensor."""
    return tf.constant(size())


def local_rank_op(**_: Any) -> Any:
    """`local_rank` as a tensor."""
    return tf.constant(local_rank())


def local_size_op(**_: Any) -> Any:
    """`local_size` as a tensor."""
    return tf.constant(local_size())


def _number(name: str) -> int:
    if name not in _state:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return int(_state[name])
