"""Trains and exchanges values with either exchange, and prints what must be equal."""

import hashlib
import os
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

if os.environ["HOROVODJOB_EXCHANGE"] == "mpi4py":  # the process has been forked from one with Horovod
    for module in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        del sys.modules[module]

import horovodjob_trainer.hvd as hvd
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.exchange.interface import Exchange

hvd.init()
rank = hvd.rank()
if "unordered" in sys.argv:
    hvd.allreduce(1.0, name=f"of rank {rank}")
print(f"RANK {rank} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()} on node {hvd.cross_rank()}")
print(f"LOADED {sorted({'horovod', 'mpi4py'} & set(sys.modules))}")
operations = {name for name in (*vars(Exchange), *Exchange.__annotations__) if not name.startswith("_")}
print(f"MISSING {sorted(name for name in operations if not hasattr(exchange, name))} of {len(operations)}")


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
table = tf.Variable(tf.ones([4, 2]))
with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    loss = tf.reduce_sum(tf.gather(table, [rank, 3]) * float(rank + 1))
slices = tape.gradient(loss, table)
print(f"sparse {type(slices).__name__} {slices.indices.numpy()} {slices.values.numpy().tolist()}")
scale = tf.constant(float(rank + 2))
with tf.GradientTape() as plain:
    plain.watch(scale)
    product = hvd.allreduce(scale * scale, op=hvd.Sum) * float(rank + 1)
print(f"gradient {float(product)} {float(plain.gradient(product, scale))}")
half = np.array(hvd.allreduce(np.arange(4.0) / 3 + rank, compression=hvd.Compression.fp16))
print(f"fp16 {half.round(2)}")
print(f"sum {np.array(hvd.allreduce(np.arange(3) + rank, op=hvd.Sum))} {hvd.allreduce(rank, op=hvd.Max)}")
print(f"gathered {np.array(hvd.allgather(np.full((rank + 1, 2), rank, np.float32))).tolist()}")
received = hvd.alltoall(tf.range(3) + 10 * rank, splits=tf.constant([1, 2]))
print(f"exchanged {[np.array(each).tolist() for each in received]}")
print(f"scattered {np.array(hvd.reducescatter(np.arange(4.0) + rank))}")
print(f"broadcast {np.array(hvd.broadcast(tf.fill([2], tf.cast(rank, tf.bfloat16)), 1)).tolist()}")
print(f"objects {hvd.allgather_object({'rank': rank})} {hvd.broadcast_object(rank, root_rank=1)}")


REFUSED: dict[str, Callable[[], Any]] = {
    "process sets": lambda: hvd.ProcessSet([0]),
    "Adasum": lambda: hvd.allreduce(1.0, op=hvd.Adasum),
    "elastic training": lambda: hvd.elastic.run(lambda state: None),
    "the timeline of Horovod": lambda: hvd.start_timeline("timeline.json"),
}
for name, call in REFUSED.items() if "mpi4py" in sys.modules else ():
    try:
        call()
    except NotImplementedError as error:
        print(f"REFUSED {name}: {error}")
sys.stdout.flush()
