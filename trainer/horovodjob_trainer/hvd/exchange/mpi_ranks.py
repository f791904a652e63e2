"""The ranks of a job under mpirun, with the functions of Horovod."""

from typing import Any

import tensorflow as tf
from mpi4py import MPI

COMM = MPI.COMM_WORLD
_state: dict[str, Any] = {}


def init(*_: Any, **__: Any) -> None:
    """Find the ranks of this node. Every rank calls it."""
    _state["local"] = COMM.Split_type(MPI.COMM_TYPE_SHARED)
    _state["nodes"] = COMM.allgather(local_rank())
    _state["local_sizes"] = COMM.allgather(local_size())


def shutdown() -> None:
    """Forget the ranks. MPI ends with the process."""
    _state.clear()


def is_initialized() -> bool:
    """Whether `init` was called."""
    return "local" in _state


def rank() -> int:
    """The number of this process in the job."""
    return int(_initialized() and COMM.Get_rank())


def size() -> int:
    """The number of processes of the job."""
    return int(_initialized() and COMM.Get_size())


def local_rank() -> int:
    """The number of this process on its node."""
    return int(_initialized().Get_rank())


def local_size() -> int:
    """The number of processes on this node."""
    return int(_initialized().Get_size())


def cross_rank() -> int:
    """The number of this node among those with as many processes."""
    return int(_state["nodes"][: rank()].count(local_rank()))


def cross_size() -> int:
    """The number of nodes with a process of this local rank."""
    return int(_state["nodes"].count(local_rank()))


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


def _initialized() -> Any:
    if not is_initialized():
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _state["local"]
