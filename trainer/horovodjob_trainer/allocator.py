"""glibc's allocator for a training: memory that a step frees stays with the process for the next step.

The C library gives the memory of large tensors back to the kernel as soon as they are freed, in each step, and the
kernel fills it with zeros again in the next one, page by page.

See `man 3 mallopt`.
"""

import ctypes
import os

MMAP_THRESHOLD = 32 * 1024**2
"""Bytes: from this size on an allocation has a mapping of its own; the largest value that glibc accepts."""
TOP_PAD = 64 * 1024**2
"""Bytes: the size of a heap of glibc, so none is given back."""
_M_TOP_PAD, _M_MMAP_THRESHOLD = -2, -3
_SET_BY_USER = ("MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Lets this process keep memory that it frees, unless the environment has settings of the allocator."""
    if any(name in os.environ for name in _SET_BY_USER):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not every C library has it
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)
        mallopt(_M_TOP_PAD, TOP_PAD)
