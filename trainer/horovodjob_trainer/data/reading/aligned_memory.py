"""Memory that TensorFlow uses without a copy."""

from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT_BYTES = 64


def allocate_aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialized array with memory that TensorFlow can use without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)
