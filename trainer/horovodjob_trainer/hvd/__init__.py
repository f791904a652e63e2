"""Horovod for Keras 3 on TensorFlow, with the names and arguments of `horovod.keras`.

Horovod's own Keras layer was written for Keras 2; with Keras 3 its optimizer trains without averaging the
gradients and says nothing. A script changes one line: `import horovodjob_trainer.hvd as hvd`.
"""

from horovod.tensorflow import (
    Average,
    Compression,
    Sum,
    allgather,
    allgather_object,
    allreduce,
    broadcast,
    broadcast_object,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)

from horovodjob_trainer.hvd import callbacks
from horovodjob_trainer.hvd.optimizer import DistributedOptimizer

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_object",
    "callbacks",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]
