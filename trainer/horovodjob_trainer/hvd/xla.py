"""Whether XLA can compile the allreduce."""

import os

import horovod.tensorflow as horovod
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

# Horovod registers its operation for XLA when its library is loaded, only in a build for GPUs.
HAS_XLA_ALLREDUCE = os.environ.get("HOROVOD_ENABLE_XLA_OPS", "0").strip() not in ("", "0") and bool(
    horovod.cuda_built() or horovod.rocm_built()
)


def is_compiled_by_xla() -> bool:
    """Whether the function that is being traced is compiled by XLA."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


def check_xla(*, is_dense: bool) -> None:
    """Raise RuntimeError in a function that XLA compiles, if it cannot compile the reduction of the gradients."""
    if not is_compiled_by_xla():
        return
    if not HAS_XLA_ALLREDUCE:
        raise RuntimeError(
            "XLA cannot compile the gradient allreduce of Horovod: call model.compile(..., jit_compile=False), or use "
            "a build of Horovod for GPUs and set HOROVOD_ENABLE_XLA_OPS=1 before the process starts"
        )
    if not is_dense:
        raise RuntimeError(
            "XLA can compile only the allreduce of Horovod: use sparse_as_dense=True for sparse gradients, and "
            "Compression.none or Compression.fp16 for gradients that are not bfloat16"
        )
