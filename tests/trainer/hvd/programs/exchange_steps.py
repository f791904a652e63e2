"""Trains and exchanges values with either exchange, and prints what must be equal."""

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

hvd.init()
rank = hvd.rank()
if "unordered" in sys.argv:
    hvd.allreduce(1.0, name=f"of rank {rank}")
print(f"RANK {rank} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()} on node {hvd.cross_rank()}")
print(f"LOADED {sorted({'horovod', 'mpi4py'} & set(sys.modules))}")


def digest(values: Any) -> str:
    return hashlib.sha256(b"".join(np.array(each).tobytes() for each in values)).hexdigest()


def trained(compression: Any) -> Any:
    """The weights after steps with an embedding, synchronized statistics, clipping and several buckets."""
    keras.utils.set_random_seed(3 + rank)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Embedding(20, 8), layers.Flatten(), layers.Dense(64, "relu"),
         layers.BatchNormalization(synchronized=True), layers.Dense(64, "relu"), layers.Dense(1)]
    )  # fmt: skip
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=1.0)
    model.compile(hvd.DistributedOptimizer(optimizer, compression=compression, bucket_bytes=4000), "mse")
    random = np.random.default_rng(rank)
    inputs, targets = random.integers(0, 20, (48, 4)), random.random((48, 1), np.float32)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    history = model.fit(inputs, targets, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert np.isfinite(history.history["loss"][-1])
    return [*model.trainable_variables, *optimizer.variables]


print(f"none {digest(trained(hvd.Compression.none))}")
print(f"bf16 {digest(trained(hvd.Compression.bf16))}")
half = np.array(hvd.allreduce(np.arange(4.0) / 3 + rank, compression=hvd.Compression.fp16))
print(f"fp16 {half.round(2)}")
print(f"sum {np.array(hvd.allreduce(np.arange(3) + rank, op=hvd.Sum))} {hvd.allreduce(rank, op=hvd.Max)}")
print(f"gathered {np.array(hvd.allgather(np.full((rank + 1, 2), rank, np.float32))).tolist()}")
received = hvd.alltoall(tf.range(3) + 10 * rank, splits=tf.constant([1, 2]))
print(f"exchanged {[np.array(each).tolist() for each in received]}")
print(f"scattered {np.array(hvd.reducescatter(np.arange(4.0) + rank))}")
print(f"broadcast {np.array(hvd.broadcast(tf.fill([2], tf.cast(rank, tf.bfloat16)), 1)).tolist()}")
print(f"objects {hvd.allgather_object({'rank': rank})} {hvd.broadcast_object(rank, root_rank=1)}")


def attempt(name: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except NotImplementedError as error:
        print(f"{name}: {error}")


attempt("process sets", lambda: hvd.ProcessSet([0]))
attempt("Adasum", lambda: hvd.allreduce(1.0, op=hvd.Adasum))
attempt("elastic", lambda: hvd.elastic.run(lambda state: None))
sys.stdout.flush()
