"""The buckets in which gradients are exchanged, in the order in which the backward pass computes them."""

import os
from collections.abc import Sequence

# That of PyTorch's DistributedDataParallel (Li et al. 2020, arXiv:2006.15704). ResNet-50 has five such buckets, and one
# with Horovod's default for HOROVOD_FUSION_THRESHOLD, 128 MiB: its exchange would begin after the last gradient.
DEFAULT_BUCKET_BYTES = 25 << 20


def bucket_bytes_from_environment() -> int:
    """The value of HOROVOD_FUSION_THRESHOLD, with which Horovod limits its messages, or the default."""
    text = os.environ.get("HOROVOD_FUSION_THRESHOLD", "").strip()
    return int(text) if text.isdecimal() else DEFAULT_BUCKET_BYTES


def buckets_of_bytes(sizes: Sequence[int], limit: int) -> list[list[int]]:
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


def equal_buckets(count: int, number: int) -> list[list[int]]:
    """The indices of `count` gradients, the last one first, in at most `number` buckets of equal lengths."""
    number = min(number, count)
    order = list(reversed(range(count)))
    return [order[count * each // number : count * (each + 1) // number] for each in range(number)]
