"""Sums of bfloat16, which Horovod cannot add: the ranks send its bits, and each rank adds a part in float32."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.process_sets import UNSCOPED, process_set_size


def reduce_as_bfloat16(
    tensors: Sequence[Any],
    name: str | None,
    op: Any,
    process_set: Any,
    ranks_per_node: int,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """The sums or averages of dense tensors over the ranks, with the same bits on all ranks.

    With several ranks per node, those of each node first add their float32 values, so that a node sends each element
    once to the other nodes and not once per rank. The traffic between the nodes is that of a ring allreduce of 16 bits.
    """
    if op not in (exchange.Sum, exchange.Average):
        raise ValueError("bfloat16 supports only op=Average and op=Sum")
    name = name or "HorovodAllreduce_bfloat16"
    size = process_set_size(process_set)
    lengths = [tf.size(tensor) for tensor in tensors]
    flat = tf.concat([tf.reshape(tf.cast(tensor, tf.float32) * prescale_factor, [-1]) for tensor in tensors], 0)
    part = tf.pad(flat, [[0, -tf.size(flat) % size]])
    if ranks_per_node == 1:
        parts = exchange.alltoall(_bits(part), name=f"{name}_parts", process_set=process_set, **UNSCOPED)
    else:
        rank, ranks = process_set.rank(), range(size)
        in_node = [int(each // ranks_per_node == rank // ranks_per_node) for each in ranks]
        on_other_nodes = [int(each % ranks_per_node == rank % ranks_per_node) for each in ranks]
        received = _send(part, in_node, f"{name}_in_node", process_set)
        part = tf.reduce_sum(tf.reshape(received, [ranks_per_node, -1]), axis=0)
        parts = _send(_bits(part), on_other_nodes, f"{name}_parts", process_set)
    senders = size // ranks_per_node
    sums = tf.reduce_sum(tf.reshape(_floats(parts), [senders, -1]), axis=0)
    factor = postscale_factor / tf.cast(size, tf.float32) if op == exchange.Average else postscale_factor
    bits = exchange.allgather(_bits(sums * factor), name=f"{name}_sums", process_set=process_set, **UNSCOPED)
    # Rank j of node i has the sums of chunk i of part j.
    whole = tf.reshape(tf.transpose(tf.reshape(bits, [senders, ranks_per_node, -1]), [1, 0, 2]), [-1])
    pieces = tf.split(tf.bitcast(whole, tf.bfloat16)[: tf.size(flat)], lengths, num=len(lengths))
    return [
        tf.cast(tf.reshape(piece, tensor.shape), tensor.dtype) for piece, tensor in zip(pieces, tensors, strict=True)
    ]


def _send(values: Any, receivers: Sequence[int], name: str, process_set: Any) -> Any:
    """Send equal parts of the values to the receivers, and return the parts that this rank receives."""
    splits = tf.constant(receivers, tf.int32) * (tf.size(values) // sum(receivers))
    received, _ = exchange.alltoall(values, splits=splits, name=name, process_set=process_set, **UNSCOPED)
    return received


def _bits(values: Any) -> Any:
    return tf.bitcast(tf.cast(values, tf.bfloat16), tf.uint16)


def _floats(bits: Any) -> Any:
    return tf.cast(tf.bitcast(bits, tf.bfloat16), tf.float32)
