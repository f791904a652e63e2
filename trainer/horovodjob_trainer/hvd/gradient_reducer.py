"""Reduction of the gradients of a step over the ranks, in buckets in the order of the backward pass."""

import os
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import control_flow_util
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph

from horovodjob_trainer.hvd.collectives import allgather_any_type, reduce_tensors
from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.exchange import exchange
from horovodjob_trainer.hvd.process_sets import UNSCOPED, is_elastic, process_set_size
from horovodjob_trainer.hvd.usage import USAGE
from horovodjob_trainer.watch.activity import Place
from horovodjob_trainer.watch.marker import mark

# That of PyTorch's DistributedDataParallel (Li et al. 2020, arXiv:2006.15704). ResNet-50 has five such buckets, and one
# with Horovod's default for HOROVOD_FUSION_THRESHOLD, 128 MiB: its exchange would begin after the last gradient.
DEFAULT_BUCKET_BYTES = 25 << 20
Gradients = list[Any]

_used_names: "weakref.WeakKeyDictionary[Any, list[str]]" = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientReducer:
    """Reduces gradients over the ranks, with the settings of an optimizer or a tape."""

    name: str
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: Any = exchange.Average
    groups: Any = None
    bucket_bytes: int | None = None
    process_set: Any = exchange.global_process_set
    scale_local_gradients: bool = True
    factor: float = 1.0
    local: dict[int, Any] = field(default_factory=dict)
    """The variables with local gradients, by their keys. The references prevent the reuse of a key."""

    def __post_init__(self) -> None:
        if self.op not in (exchange.Average, exchange.Sum):
            raise ValueError("op must be hvd.Average or hvd.Sum; gradients support neither Adasum nor other operations")
        if self.gradient_predivide_factor != 1.0 and self.op != exchange.Average:
            raise ValueError("gradient_predivide_factor needs op=hvd.Average")
        if not (self.groups is None or isinstance(self.groups, list) or _is_positive_integer(self.groups)):
            raise ValueError(f"groups must be a positive integer or a list of lists of variables, not {self.groups!r}")
        if not (self.bucket_bytes is None or _is_positive_integer(self.bucket_bytes)):
            raise ValueError(f"bucket_bytes must be a positive integer, not {self.bucket_bytes!r}")
        if self.groups is not None and self.bucket_bytes is not None:
            raise ValueError("use either groups (or num_groups) or bucket_bytes, not both")
        if is_elastic() and self.process_set is not exchange.global_process_set:
            raise ValueError("process_set is not supported with elastic: its ranks may leave")

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Gradients:
        """The reduced gradients; a None stays None."""
        result = list(gradients)
        if len(result) != len(variables):
            raise ValueError(
                f"{len(result)} gradients for {len(variables)} variables; the lists must have the same length"
            )
        for variable, gradient in zip(variables, result, strict=True):
            if gradient is not None and getattr(variable, "overwrite_with_gradient", False):
                raise ValueError(f"{variable.path} contains a scale of float8 training, which cannot be averaged")
        if not self.is_active():
            return [_scale_gradient(gradient, self.factor) for gradient in result]
        USAGE.gradient_reductions += 1
        if self.sparse_as_dense:
            result = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in result]
        _check_compilation()
        shared_indices = []
        for index, (variable, gradient) in enumerate(zip(variables, result, strict=True)):
            if gradient is not None and variable_key(variable) in self.local:
                result[index] = self._scale_local_gradient(gradient)
            elif gradient is not None:
                shared_indices.append(index)
        mark(Place.EXCHANGE, after=[result[index] for index in shared_indices])
        name = unique_name(f"{self.name}_{_digest([result[index] for index in shared_indices])}")
        for number, group in enumerate(self._groups(shared_indices, result, variables)):
            for index, gradient in self._reduce_group(group, result, f"{name}_{number}"):
                result[index] = gradient
        mark(Place.COMPUTATION, after=[result[index] for index in shared_indices])
        return result

    def is_active(self) -> bool:
        """Whether there are other ranks, or can be with elastic."""
        return is_elastic() or (self.process_set.included() and self.process_set.size() > 1)

    def is_true_on_all_ranks(self, condition: Any) -> Any:
        """Whether a condition, a boolean tensor, is true on all ranks."""
        if not self.is_active():
            return condition
        minimum = exchange.allreduce(
            tf.cast(condition, tf.int32),
            op=exchange.Min,
            name=f"{self.name}_agree",
            process_set=self.process_set,
            **UNSCOPED,
        )
        return minimum > 0

    def _scale_local_gradient(self, gradient: Any) -> Any:
        # The shared gradients are those of the mean over the batches of all ranks; local gradients need the same scale.
        scale = tf.cast(1 / process_set_size(self.process_set), gradient.dtype) if self.scale_local_gradients else 1.0
        return _scale_gradient(gradient, scale * self.factor)

    def _groups(self, indices: list[int], gradients: Gradients, variables: Sequence[Any]) -> list[list[int]]:
        # Each group is one operation, which starts when its last gradient exists. The backward pass computes the
        # gradients in the reverse order of the variables, so the first groups are exchanged during the rest of it.
        if isinstance(self.groups, list):
            remaining = {variable_key(variables[index]): index for index in indices}
            groups = [
                [remaining.pop(key) for key in map(variable_key, group) if key in remaining] for group in self.groups
            ]
            return [group for group in [*groups, *([index] for index in remaining.values())] if group]
        if self.groups is not None:
            buckets = _equal_buckets(len(indices), self.groups)
        else:
            sizes = [_size_bytes(variables[index], gradients[index]) for index in indices]
            buckets = _buckets_of_bytes(sizes, self.bucket_bytes or _bucket_bytes_from_environment())
        return [[indices[position] for position in bucket] for bucket in buckets]

    def _reduce_group(self, group: list[int], gradients: Gradients, name: str) -> list[tuple[int, Any]]:
        results: list[tuple[int, Any]] = []
        dense: dict[int, Any] = {}
        for position, index in enumerate(group):
            if isinstance(gradients[index], tf.IndexedSlices):
                results.append((index, self._reduce_slices(gradients[index], f"{name}_{position}")))
            else:
                dense[index] = gradients[index]
        scale = {
            "prescale_factor": 1.0 / self.gradient_predivide_factor,
            "postscale_factor": self.gradient_predivide_factor * self.factor,
        }
        with tf.device(self.device_dense):
            tensors = [tf.convert_to_tensor(gradient) for gradient in dense.values()]
            means = reduce_tensors(tensors, name, self.op, self.compression, self.process_set, **scale)
        return [*results, *zip(dense, means, strict=True)]

    def _reduce_slices(self, slices: Any, name: str) -> Any:
        # The concatenated slices of all ranks are those that one process would have with the whole batch.
        if self.gradient_predivide_factor != 1.0:
            raise ValueError("gradient_predivide_factor needs sparse_as_dense=True, because a gradient is sparse")
        USAGE.allreduces += 1
        with tf.device(self.device_sparse):
            values = allgather_any_type(slices.values, f"{name}_values", self.process_set)
            indices = allgather_any_type(slices.indices, f"{name}_indices", self.process_set)
            divisor = tf.cast(process_set_size(self.process_set) if self.op == exchange.Average else 1, values.dtype)
            return tf.IndexedSlices(values * (self.factor / divisor), indices, slices.dense_shape)


def build_gradient_reducer(prefix: str, *, num_groups: int = 0, groups: Any = None, **settings: Any) -> GradientReducer:
    """A reducer whose operation names contain the prefix and HorovodAllreduce, which identifies errors of Horovod."""
    name = "".join(letter if letter.isalnum() else "_" for letter in prefix)
    return GradientReducer(name=f"{name}_HorovodAllreduce", groups=groups or num_groups or None, **settings)


def variable_key(variable: Any) -> int:
    """An identity of a variable, the same for a Keras variable and the TensorFlow variable in it."""
    native = variable.value if isinstance(variable, keras.Variable) else variable
    return id(native)


def _check_compilation() -> None:
    """Raise RuntimeError in a function that XLA compiles."""
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise RuntimeError(
            "XLA cannot compile the gradient allreduce of Horovod: call model.compile(..., jit_compile=False)"
        )


def _digest(gradients: Gradients) -> str:
    # Distinguishes two optimizers of one class, as in a GAN. Names of layers differ between ranks; the shapes of shared
    # gradients do not.
    shapes = [None if each is None else (each.shape.as_list(), each.dtype.name) for each in gradients]
    return f"{zlib.crc32(repr(shapes).encode()):08x}"


def unique_name(name: str) -> str:
    """A name for one more operation in the current graph."""
    # Two operations of one name must not run at the same time. Those in different branches of a function can, and
    # TensorFlow makes only the names in each branch unique.
    if tf.executing_eagerly():
        return name
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, ControlFlowFuncGraph):
        graph = graph.outer_graph
    used = _used_names.setdefault(graph, [])
    used.append(name)
    count = used.count(name)
    return f"{name}_{count}" if count > 1 else name


def _size_bytes(variable: Any, gradient: Any) -> int:
    # The number of slices differs between the ranks. They are exchanged alone, and take no room in a bucket.
    elements = 0 if isinstance(gradient, tf.IndexedSlices) else tf.TensorShape(variable.shape).num_elements()
    return (elements or 0) * int(gradient.dtype.size)


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _scale_gradient(gradient: Any, factor: Any) -> Any:
    if gradient is None or (isinstance(factor, float) and factor == 1.0):
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def _bucket_bytes_from_environment() -> int:
    """The value of HOROVOD_FUSION_THRESHOLD, with which Horovod limits its messages, or the default."""
    text = os.environ.get("HOROVOD_FUSION_THRESHOLD", "").strip()
    return int(text) if text.isdecimal() else DEFAULT_BUCKET_BYTES


def _buckets_of_bytes(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """The indices of gradients of these sizes, the last one first, in buckets of at most `limit` bytes.

    A larger gradient has a bucket of its own.
    """
    buckets: list[list[int]] = []
    free_bytes = 0
    for index in reversed(range(len(sizes))):
        if not buckets or sizes[index] > free_bytes:
            buckets.append([])
            free_bytes = limit
        buckets[-1].append(index)
        free_bytes -= sizes[index]
    return buckets


def _equal_buckets(count: int, number: int) -> list[list[int]]:
    """The indices of `count` gradients, the last one first, in at most `number` buckets of equal lengths."""
    number = min(number, count)
    order = list(reversed(range(count)))
    return [order[count * each // number : count * (each + 1) // number] for each in range(number)]
