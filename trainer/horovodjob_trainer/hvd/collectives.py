"""Collective operations for tensors, numbers, arrays and Keras variables."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.hvd.bfloat16 import reduce_as_bfloat16
from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.process_sets import UNSCOPED, ranks_per_node
from horovodjob_trainer.hvd.usage import USAGE

MAX_BROADCAST_BYTES = 64 << 20

# All other types are sent as bytes.
HOROVOD_TYPES = frozenset(
    [tf.bool, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64]
)
SEED_STATE_NAME = "seed_generator_state"
# In a function of a user, TensorFlow would translate the code of this package and of Horovod first, for seconds.
do_not_convert = tf.autograph.experimental.do_not_convert


@do_not_convert  # type: ignore[untyped-decorator]
def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
    process_set: Any = exchange.global_process_set,
) -> Any:
    """The average of a value over the ranks, or another reduction with `op`."""
    op = exchange.handle_average_backwards_compatibility(op, average)
    scale = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return reduce_tensors([tf.convert_to_tensor(value)], name, op, compression, process_set, **scale)[0]


@do_not_convert  # type: ignore[untyped-decorator]
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = exchange.global_process_set,
    name: str | None = None,
) -> list[Any]:
    """The averages of several tensors over the ranks, in a single operation for each of their types."""
    op = exchange.handle_average_backwards_compatibility(op, average)
    scale = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    with tf.device(device_dense):
        return reduce_tensors(
            [tf.convert_to_tensor(value) for value in tensors], name, op, compression, process_set, **scale
        )


def reduce_tensors(
    tensors: Sequence[Any], name: str | None, op: Any, compression: Any, process_set: Any, **scale: float
) -> list[Any]:
    """Reduce dense tensors over the ranks, those of one type as one group."""
    by_type: dict[Any, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_type.setdefault(tensor.dtype, []).append(index)
    results: dict[int, Any] = {}
    for dtype, indices in by_type.items():  # the tensors of an operation must have the same type
        own_name = f"{name}_{dtype.name}" if name and len(by_type) > 1 else name
        group = [tensors[index] for index in indices]
        results |= zip(indices, _reduce_group(group, own_name, op, compression, process_set, **scale), strict=True)
    return [results[index] for index in range(len(tensors))]


def _reduce_group(
    tensors: Sequence[Any], name: str | None, op: Any, compression: Any, process_set: Any, **scale: float
) -> list[Any]:
    USAGE.allreduces += 1
    if compression is Compression.bf16 or tensors[0].dtype == tf.bfloat16:
        return reduce_as_bfloat16(tensors, name, op, process_set, ranks_per_node(process_set), **scale)
    settings = {"op": op, "compression": compression, "process_set": process_set, **UNSCOPED, **scale}
    return list(exchange.grouped_allreduce(list(tensors), name=name, **settings))


@do_not_convert  # type: ignore[untyped-decorator]
def allgather(value: Any, name: str | None = None, process_set: Any = exchange.global_process_set) -> Any:
    """The values of all ranks, concatenated along the first axis."""
    return allgather_any_type(tf.convert_to_tensor(value), name, process_set, ignore_name_scope=False)


def allgather_any_type(tensor: Any, name: str | None, process_set: Any, ignore_name_scope: bool = True) -> Any:
    """The tensors of all ranks, concatenated along the first axis, also of a type that Horovod does not support."""
    gathered = exchange.allgather(
        _supported(tensor), name=name, process_set=process_set, ignore_name_scope=ignore_name_scope
    )
    return _original(gathered, tensor.dtype)


@do_not_convert  # type: ignore[untyped-decorator]
def broadcast(
    value: Any, root_rank: int, name: str | None = None, process_set: Any = exchange.global_process_set
) -> Any:
    """The value of `root_rank`."""
    tensor = tf.convert_to_tensor(value)
    return _original(
        exchange.broadcast(_supported(tensor), root_rank, name=name, process_set=process_set), tensor.dtype
    )


def _supported(tensor: Any) -> Any:
    return tensor if tensor.dtype in HOROVOD_TYPES else tf.bitcast(tensor, tf.uint8)


def _original(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype in HOROVOD_TYPES else tf.bitcast(tensor, dtype)


def join() -> Any:
    """Wait until all ranks have joined, and return the last one. Raises RuntimeError after an allreduce.

    In Horovod 0.28.1, a rank that has joined adds old values instead of zeros to grouped operations, waits indefinitely
    for an allgather, and ends with a segmentation fault in an alltoall.
    """
    if USAGE.allreduces:
        raise RuntimeError(
            f"rank {exchange.rank()}: hvd.join() does not support the grouped operations of this package: run the same "
            "number of steps on all ranks, for example with steps_per_epoch, and remove hvd.join()"
        )
    return exchange.join()


@do_not_convert  # type: ignore[untyped-decorator]
def reducescatter(
    value: Any, name: str | None = None, op: Any = exchange.Average, process_set: Any = exchange.global_process_set
) -> Any:
    """The part of this rank, along the first axis, of the average over the ranks."""
    return exchange.reducescatter(tf.convert_to_tensor(value), name=name, op=op, process_set=process_set)


@do_not_convert  # type: ignore[untyped-decorator]
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int = 0,
    process_set: Any = exchange.global_process_set,
    inplace: bool = False,
) -> None:
    """Assign the values of `root_rank` to Keras or TensorFlow variables, with few large messages.

    The states of seed generators are not broadcast, so that each rank has its own dropout. `inplace` has no effect.
    """
    by_type: dict[Any, list[Any]] = {}
    for variable in variables:
        if variable.name.partition(":")[0].rpartition("/")[2] != SEED_STATE_NAME:
            native = variable.value if isinstance(variable, keras.Variable) else variable
            by_type.setdefault(native.dtype, []).append(native)
    for dtype in sorted(by_type, key=str):
        for number, chunk in enumerate(_chunks(by_type[dtype])):
            _broadcast_chunk(chunk, root_rank, f"HorovodBroadcast_{dtype.name}_{number}", process_set)


def _chunks(variables: list[Any]) -> list[list[Any]]:
    chunks: list[list[Any]] = [[]]
    free_bytes = MAX_BROADCAST_BYTES
    for variable in variables:
        needed = variable.shape.num_elements() * variable.dtype.size
        if needed > free_bytes and chunks[-1]:
            chunks.append([])
            free_bytes = MAX_BROADCAST_BYTES
        chunks[-1].append(variable)
        free_bytes -= needed
    return chunks


def _broadcast_chunk(variables: list[Any], root_rank: int, name: str, process_set: Any) -> None:
    flat = tf.concat([tf.reshape(variable, [-1]) for variable in variables], 0)
    flat = _original(
        exchange.broadcast(_supported(flat), root_rank, name=name, process_set=process_set, **UNSCOPED), flat.dtype
    )
    pieces = tf.split(flat, [variable.shape.num_elements() for variable in variables])
    for variable, piece in zip(variables, pieces, strict=True):
        variable.assign(tf.reshape(piece, variable.shape))
