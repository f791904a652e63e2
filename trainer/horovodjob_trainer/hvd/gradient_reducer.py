"""What happens to the gradients of a step between the ranks."""

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import horovod.tensorflow as horovod
import keras
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from horovodjob_trainer.hvd.collectives import UNSCOPED, is_elastic, reduced, size_of
from horovodjob_trainer.hvd.compression import Compression

Gradients = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How the gradients of all ranks become one: the settings of an optimizer or a tape."""

    name: str
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: Any = horovod.Average
    groups: Any = None
    process_set: Any = horovod.global_process_set
    scale_local_gradients: bool = True
    factor: float = 1.0
    local: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.op not in (horovod.Average, horovod.Sum):
            raise ValueError("op can be hvd.Average or hvd.Sum; Adasum and others are not offered for gradients")
        if self.gradient_predivide_factor != 1.0 and self.op != horovod.Average:
            raise ValueError("gradient_predivide_factor needs op=hvd.Average")
        if not (self.groups is None or isinstance(self.groups, list) or _is_positive_integer(self.groups)):
            raise ValueError(f"groups is a number from 1 or a list of lists of variables, not {self.groups!r}")
        if is_elastic() and self.process_set is not horovod.global_process_set:
            raise ValueError("process_set cannot be given under elastic: its ranks may leave")

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Gradients:
        """The gradients reduced over the ranks; a None stays None."""
        result = list(gradients)
        if len(result) != len(variables):
            raise ValueError(f"{len(result)} gradients came for {len(variables)} variables; the two lists must match")
        for variable, gradient in zip(variables, result, strict=True):
            if gradient is not None and getattr(variable, "overwrite_with_gradient", False):
                raise ValueError(f"{variable.path} holds a scale of float8 training, which cannot be averaged")
        if not self.is_shared():
            return [_scaled(gradient, self.factor) for gradient in result]
        refuse_xla()
        if self.sparse_as_dense:
            result = [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in result]
        shared = []
        for index, (variable, gradient) in enumerate(zip(variables, result, strict=True)):
            if gradient is not None and key_of(variable) in self.local:
                result[index] = self._local_share(gradient)
            elif gradient is not None:
                shared.append(index)
        name = f"{self.name}_{_digest(result)}"
        for number, group in enumerate(self._groups(shared, variables)):
            for index, gradient in self._reduced(group, result, f"{name}_{number}"):
                result[index] = gradient
        return result

    def is_shared(self) -> bool:
        """Whether there is, or under elastic can be, somebody to exchange with."""
        return is_elastic() or (self.process_set.included() and self.process_set.size() > 1)

    def all_agree(self, claim: Any) -> Any:
        """Whether a claim, a boolean tensor, is true on all ranks."""
        if not self.is_shared():
            return claim
        votes = horovod.allreduce(
            tf.cast(claim, tf.int32),
            op=horovod.Min,
            name=f"{self.name}_agree",
            process_set=self.process_set,
            **UNSCOPED,
        )
        return votes > 0

    def _local_share(self, gradient: Any) -> Any:
        # The shared gradients are those of the mean over all ranks' batches; so must these be.
        share = tf.cast(1 / size_of(self.process_set), gradient.dtype) if self.scale_local_gradients else 1.0
        return _scaled(gradient, share * self.factor)

    def _groups(self, indices: list[int], variables: Sequence[Any]) -> list[list[int]]:
        # One group unless told otherwise: Horovod fuses it into few messages.
        if self.groups is None or not indices:
            return [indices]
        if isinstance(self.groups, int):
            count = min(self.groups, len(indices))
            length, longer = divmod(len(indices), count)
            ends = [number * length + min(number, longer) for number in range(count + 1)]
            return [indices[start:end] for start, end in itertools.pairwise(ends)]
        left = {key_of(variables[index]): index for index in indices}
        groups = [[left.pop(key) for key in map(key_of, group) if key in left] for group in self.groups]
        return [group for group in [*groups, *([index] for index in left.values())] if group]

    def _reduced(self, group: list[int], gradients: Gradients, name: str) -> list[tuple[int, Any]]:
        reduced_ones: list[tuple[int, Any]] = []
        by_type: dict[Any, list[int]] = {}
        for index in group:
            if isinstance(gradients[index], tf.IndexedSlices):
                reduced_ones.append((index, self._reduced_slices(gradients[index], f"{name}_{index}")))
            else:
                by_type.setdefault(gradients[index].dtype, []).append(index)
        scale = {
            "prescale_factor": 1.0 / self.gradient_predivide_factor,
            "postscale_factor": self.gradient_predivide_factor * self.factor,
        }
        for dtype, indices in by_type.items():  # an operation takes tensors of one type
            with tf.device(self.device_dense):
                dense = [tf.convert_to_tensor(gradients[index]) for index in indices]
                means = reduced(dense, f"{name}_{dtype.name}", self.op, self.compression, self.process_set, **scale)
            reduced_ones += zip(indices, means, strict=True)
        return reduced_ones

    def _reduced_slices(self, slices: Any, name: str) -> Any:
        # The slices of all ranks, one after the other: what one process would have with the whole batch.
        if self.gradient_predivide_factor != 1.0:
            raise ValueError("gradient_predivide_factor needs sparse_as_dense=True: a gradient is sparse")
        with tf.device(self.device_sparse):
            values = horovod.allgather(slices.values, name=f"{name}_values", process_set=self.process_set, **UNSCOPED)
            indices = horovod.allgather(
                slices.indices, name=f"{name}_indices", process_set=self.process_set, **UNSCOPED
            )
            divisor = tf.cast(size_of(self.process_set) if self.op == horovod.Average else 1, values.dtype)
            return tf.IndexedSlices(values * (self.factor / divisor), indices, slices.dense_shape)


def exchange_of(prefix: str, *, num_groups: int = 0, groups: Any = None, **settings: Any) -> Exchange:
    """An exchange whose operations carry a prefix and the word by which Horovod's errors are known."""
    name = "".join(letter if letter.isalnum() else "_" for letter in prefix)
    return Exchange(name=f"{name}_HorovodAllreduce", groups=groups or num_groups or None, **settings)


def key_of(variable: Any) -> int:
    """What tells a variable from others, be it Keras' or the TensorFlow variable in it."""
    native = variable.value if isinstance(variable, keras.Variable) else variable
    return id(native)


def refuse_xla() -> None:
    """Raises RuntimeError inside a function that XLA compiles."""
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise RuntimeError(
            "XLA cannot compile Horovod's exchange of gradients: call model.compile(..., jit_compile=False)"
        )


def _digest(gradients: Gradients) -> str:
    # Two optimizers of one class, as in a GAN, must not meet; the names of layers differ between ranks, shapes do not.
    shapes = [None if each is None else (each.shape.as_list(), each.dtype.name) for each in gradients]
    return f"{zlib.crc32(repr(shapes).encode()):08x}"


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _scaled(gradient: Any, factor: Any) -> Any:
    if gradient is None or (isinstance(factor, float) and factor == 1.0):
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
