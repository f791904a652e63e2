"""The exchange over MPI with mpi4py: that of a Python without Horovod, for jobs with a fixed number of ranks.

An operation is a Python function in the graph of TensorFlow, with its values in the memory of the host. Horovod matches
the operations of the ranks by their names, MPI by their order. Operations of a graph therefore run one after another,
and each compares the names first.
"""

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from horovodjob_trainer.hvd.exchange.mpi_ranks import (
    COMM,
    MPI,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_rank_op,
    local_size,
    local_size_op,
    rank,
    rank_op,
    shutdown,
    size,
    size_op,
)

__all__ = [
    "cross_rank", "cross_size", "init", "is_homogeneous", "is_initialized", "local_rank", "local_rank_op", "local_size",
    "local_size_op", "rank", "rank_op", "shutdown", "size", "size_op",
]  # fmt: skip

COLLECTION = "horovodjob_exchange"
NAME_BYTES = 128
_lock = threading.Lock()  # of the process: functions of two graphs can run at the same time


class Operation(Enum):
    """The reductions, with the names in Horovod."""

    Average = "Average"
    Sum = "Sum"
    Adasum = "Adasum"
    Min = "Min"
    Max = "Max"
    Product = "Product"


Average, Sum, Adasum = Operation.Average, Operation.Sum, Operation.Adasum
Min, Max, Product = Operation.Min, Operation.Max, Operation.Product
REDUCTIONS = {Average: MPI.SUM, Sum: MPI.SUM, Min: MPI.MIN, Max: MPI.MAX, Product: MPI.PROD}


class NoneCompressor:
    """Sends gradients as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(NoneCompressor):
    """Rounds gradients to float16. The exchange adds, and sends, them as float32."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor as float16, and its original type."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype


class Compression:
    """The compression methods `none` and `fp16`."""

    none, fp16 = NoneCompressor, FP16Compressor


class ProcessSet:
    """All ranks. This exchange has no other process sets."""

    process_set_id = 0

    def __init__(self, *ranks: Any) -> None:
        if ranks:
            _refused("process sets")

    def included(self) -> bool:
        """Whether this rank is one of them."""
        return True

    def rank(self) -> int:
        """The rank of this process among them."""
        return rank()

    def size(self) -> int:
        """Their number."""
        return size()


global_process_set = ProcessSet()


def allreduce(tensor: Any, name: str | None = None, **options: Any) -> Any:
    """The average of a tensor over the ranks, or another reduction."""
    return grouped_allreduce([tensor], name=name, **options)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    name: str | None = None,
    op: Any = Average,
    compression: Any = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    **_: Any,
) -> list[Any]:
    """The averages of tensors of one type over the ranks, or another reduction, in one message."""
    if op not in REDUCTIONS:
        _refused(op.value)
    factor = postscale_factor / size() if op is Average else postscale_factor

    def reduce(*arrays: Any) -> list[Any]:
        dtype = np.float32 if arrays[0].dtype == np.float16 else arrays[0].dtype  # MPI has no float16
        flat = np.concatenate([array.ravel() for array in arrays]).astype(dtype, copy=False)
        _scale(flat, prescale_factor)
        COMM.Allreduce(MPI.IN_PLACE, flat, REDUCTIONS[op])
        _scale(flat, factor)
        parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
        return [
            part.reshape(array.shape).astype(array.dtype, copy=False) for part, array in zip(parts, arrays, strict=True)
        ]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def reduced(*values: Any) -> Any:
        results = _collective(reduce, values, [value.dtype for value in values], f"allreduce {name}")
        for result, value in zip(results, values, strict=True):
            result.set_shape(value.shape)

        def gradient(*upstream: Any) -> Any:
            return grouped_allreduce(
                upstream, f"{name}_grad", op, compression, prescale_factor, postscale_factor
            )  # fmt: skip

        return results, gradient

    sent = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    received = reduced(*(tensor for tensor, _ in sent)) if sent else []
    return [compression.decompress(each, context) for each, (_, context) in zip(received, sent, strict=True)]


def allgather(tensor: Any, name: str | None = None, **_: Any) -> Any:
    """The tensors of all ranks, concatenated along the first axis. It has no gradient."""
    tensor = tf.convert_to_tensor(tensor)
    (result,) = _collective(
        lambda array: [np.concatenate(COMM.allgather(array))], [tensor], [tensor.dtype], f"allgather {name}"
    )
    result.set_shape([None, *tensor.shape[1:]])
    return result


def alltoall(tensor: Any, splits: Any = None, name: str | None = None, **_: Any) -> Any:
    """The parts for this rank of the tensors of all ranks. With `splits`, also their lengths. It has no gradient."""
    tensor = tf.convert_to_tensor(tensor)
    lengths = tf.fill([size()], tf.shape(tensor)[0] // size()) if splits is None else tf.convert_to_tensor(splits)

    def exchanged(array: Any, counts: Any) -> list[Any]:
        received = COMM.alltoall(np.split(array, np.cumsum(counts)[:-1]))
        return [np.concatenate(received), np.array([len(part) for part in received], counts.dtype)]

    result, counts = _collective(exchanged, [tensor, lengths], [tensor.dtype, lengths.dtype], f"alltoall {name}")
    result.set_shape([None, *tensor.shape[1:]])
    return result if splits is None else (result, counts)


def broadcast(tensor: Any, root_rank: int, name: str | None = None, **_: Any) -> Any:
    """The tensor of `root_rank`. It has no gradient."""
    tensor = tf.convert_to_tensor(tensor)

    def received(array: Any) -> list[Any]:
        values = np.array(array)
        COMM.Bcast(values.reshape(-1).view(np.uint8), root_rank)
        return [values]

    (result,) = _collective(received, [tensor], [tensor.dtype], f"broadcast {name}")
    result.set_shape(tensor.shape)
    return result


def reducescatter(tensor: Any, name: str | None = None, op: Any = Average, **options: Any) -> Any:
    """The part of this rank, along the first axis, of a reduction."""
    parts = np.array_split(np.arange(int(tensor.shape[0])), size())
    own = parts[rank()]
    return (
        allreduce(tensor, f"reducescatter {name}", op=op, **options)[own[0] : own[-1] + 1] if len(own) else tensor[:0]
    )


def handle_average_backwards_compatibility(op: Any, average: bool | None) -> Any:
    """The reduction for the arguments `op` and `average`."""
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    return op if op is not None else (Sum if average is False else Average)


def allgather_object(obj: Any, **_: Any) -> list[Any]:
    """The objects of all ranks."""
    with _lock:
        _check_order("allgather_object")
        return list(COMM.allgather(obj))


def broadcast_object(obj: Any = None, root_rank: int = 0, **_: Any) -> Any:
    """The object of `root_rank`."""
    with _lock:
        _check_order("broadcast_object")
        return COMM.bcast(obj, root_rank)


def join() -> int:
    """Wait until all ranks have called it. Returns the last rank of the job."""
    allgather_object(None)
    return size() - 1


class State:
    """Not supported."""

    def __init__(self, **_: Any) -> None:
        _refused("elastic training")


class ObjectState(State):
    """Not supported."""


class HorovodInternalError(RuntimeError):
    """Not raised: MPI ends the job with a rank that fails."""


class HostsUpdatedInterrupt(RuntimeError):
    """Not raised: the ranks of a job do not change."""


def run_fn(*_: Any) -> NoReturn:
    """Not supported."""
    _refused("elastic training")


def add_process_set(*_: Any) -> NoReturn:
    """Not supported."""
    _refused("process sets")


remove_process_set = add_process_set


def start_timeline(*_: Any, **__: Any) -> NoReturn:
    """Not supported."""
    _refused("the timeline of Horovod")


stop_timeline = start_timeline


def mpi_enabled() -> bool:
    """Whether MPI connects the ranks."""
    return True


def nccl_built() -> bool:
    """Whether another library connects the ranks."""
    return False


mpi_built = mpi_threads_supported = mpi_enabled
gloo_built = gloo_enabled = ccl_built = ddl_built = cuda_built = rocm_built = nccl_built


def _collective(function: Callable[..., list[Any]], tensors: Sequence[Any], types: list[Any], name: str) -> list[Any]:
    """Run the function after the operations before it in the graph."""

    def run(*arrays: Any) -> list[Any]:
        with _lock:
            _check_order(name)
            return function(*arrays)

    earlier = [] if tf.executing_eagerly() else tf.compat.v1.get_default_graph().get_collection_ref(COLLECTION)
    with tf.control_dependencies(earlier):
        results = list(tf.nest.flatten(tf.numpy_function(run, list(tensors), types)))  # no list in eager mode
    if not tf.executing_eagerly():
        earlier[:] = [results[0].op]
    return results


def abort() -> None:
    """End all ranks."""
    COMM.Abort(1)


def _check_order(name: str) -> None:
    """End the job if rank 0 is in another operation, because MPI would mix their values."""
    own = np.zeros(NAME_BYTES, np.uint8)
    text = name.encode()[-NAME_BYTES:]  # the ends of long names differ
    own[: len(text)] = list(text)
    first = own.copy()
    COMM.Bcast(first, 0)
    if bytes(own) != bytes(first):
        other = bytes(first).rstrip(b"\0").decode(errors="replace")
        print(f"rank {COMM.Get_rank()} is in another operation than rank 0, {name}: rank 0 is in {other}. The exchange "
              "mpi4py needs one order of the operations on all ranks", flush=True)  # fmt: skip
        COMM.Abort(1)


def _scale(values: Any, factor: float) -> None:
    if factor != 1.0:
        np.multiply(values, factor, out=values, casting="unsafe")


def _refused(what: str) -> NoReturn:
    raise NotImplementedError(f"the exchange mpi4py does not support {what}, which needs Horovod")
