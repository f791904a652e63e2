"""Horovod for Keras 3 on TensorFlow, with the names and arguments of `horovod.keras`.

The Keras layer of Horovod was written for Keras 2. With Keras 3, its optimizer does not average the gradients and
reports no error. A script needs one changed line: `import horovodjob_trainer.hvd as hvd`.
"""

import importlib
from typing import Any, NoReturn

import keras

from horovodjob_trainer.allocator import keep_freed_memory
from horovodjob_trainer.hvd import callbacks, elastic
from horovodjob_trainer.hvd.collectives import (
    allgather,
    allreduce,
    broadcast,
    broadcast_variables,
    grouped_allreduce,
    join,
    reducescatter,
)
from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.elastic import run as elastic_run
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.keras_patches import patch_keras
from horovodjob_trainer.hvd.loss import DistributedLoss
from horovodjob_trainer.hvd.optimizer import DistributedOptimizer, PartialDistributedOptimizer, is_distributed
from horovodjob_trainer.hvd.saving import load_model
from horovodjob_trainer.hvd.tape import DistributedGradientTape, PartialDistributedGradientTape

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"Horovod for Keras 3 needs the Keras backend tensorflow; KERAS_BACKEND is {keras.backend.backend()}"
    )
patch_keras()
keep_freed_memory()

Adasum = exchange.Adasum
Average = exchange.Average
Max = exchange.Max
Min = exchange.Min
ProcessSet = exchange.ProcessSet
Product = exchange.Product
Sum = exchange.Sum
add_process_set = exchange.add_process_set
allgather_object = exchange.allgather_object
alltoall = exchange.alltoall
broadcast_object = exchange.broadcast_object
ccl_built = exchange.ccl_built
cross_rank = exchange.cross_rank
cross_size = exchange.cross_size
cuda_built = exchange.cuda_built
ddl_built = exchange.ddl_built
global_process_set = exchange.global_process_set
gloo_built = exchange.gloo_built
gloo_enabled = exchange.gloo_enabled
init = exchange.init
is_homogeneous = exchange.is_homogeneous
is_initialized = exchange.is_initialized
local_rank = exchange.local_rank
local_rank_op = exchange.local_rank_op
local_size = exchange.local_size
local_size_op = exchange.local_size_op
mpi_built = exchange.mpi_built
mpi_enabled = exchange.mpi_enabled
mpi_threads_supported = exchange.mpi_threads_supported
nccl_built = exchange.nccl_built
rank = exchange.rank
rank_op = exchange.rank_op
remove_process_set = exchange.remove_process_set
rocm_built = exchange.rocm_built
shutdown = exchange.shutdown
size = exchange.size
size_op = exchange.size_op
start_timeline = exchange.start_timeline
stop_timeline = exchange.stop_timeline


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """Not supported: Keras 3 has no list of all variables."""
    raise NotImplementedError(
        "Keras 3 has no list of all variables: call "
        f"hvd.broadcast_variables([*model.weights, *model.optimizer.variables], root_rank={root_rank})"
    )


def SyncBatchNormalization(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported: the layer of Horovod overrides methods that Keras 3 does not call, so it would not synchronize."""
    raise NotImplementedError(
        "SyncBatchNormalization does not work with Keras 3: use keras.layers.BatchNormalization(synchronized=True)"
    )


# Resumable runs. A script that uses none does not import them.
_RUN_MODULES = {
    "Examples": "horovodjob_trainer.run.scripts.batches",
    "Run": "horovodjob_trainer.run.scripts.loop",
    "RunCallback": "horovodjob_trainer.run.scripts.fit",
}


def __getattr__(name: str) -> Any:
    if name not in _RUN_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_RUN_MODULES[name]), name)


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedLoss",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "elastic_run",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
    "is_distributed",
    "is_homogeneous",
    "is_initialized",
    "join",
    "load_model",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
