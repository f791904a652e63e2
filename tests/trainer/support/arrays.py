"""The arrays of saved models and checkpoints."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np


def arrays(path: Path) -> dict[str, Any]:
    """Every array of an .h5 file, by its name: weights and the variables of the optimizer."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def array(path: Path, *parts: str) -> Any:
    """The only array of a model whose name has these parts."""
    (found,) = (
        value for name, value in arrays(path).items() if all(part in name for part in ("model_weights", *parts))
    )
    return found


def assert_same_bits(first: Path, second: Path) -> None:
    """Compare all arrays of two files."""
    one, other = arrays(first), arrays(second)
    assert one.keys() == other.keys()
    assert len(one) > 10
    assert [name for name in one if not np.array_equal(one[name], other[name])] == []
