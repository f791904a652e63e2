"""Comparison of the batches of two sources."""

from typing import Any

import numpy as np


def assert_equal(batches: Any, others: Any) -> None:
    """Check that both have the same examples and labels, in the same order."""
    for batch, other in zip(batches, others, strict=True):
        for values, expected in zip(batch, other, strict=True):
            np.testing.assert_array_equal(values, expected)
