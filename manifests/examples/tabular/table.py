"""Reads table.csv, whose last column is what the network predicts from the others."""

from pathlib import Path
from typing import Any

import keras
import numpy as np

TABLE = Path(__file__).with_name("table.csv")


def prices() -> Any:
    """The examples with a mean of 0 and a deviation of 1, and their prices: for training, and for testing."""
    values = np.loadtxt(TABLE, np.float32, delimiter=",", skiprows=1)
    examples, targets = values[:, :-1], values[:, -1:]
    examples = (examples - examples.mean(axis=0)) / examples.std(axis=0)
    training = len(examples) * 9 // 10
    return (examples[:training], targets[:training]), (examples[training:], targets[training:])


def network(shape: Any) -> Any:
    """Two layers, and one number as the result."""
    return keras.Sequential([keras.Input(shape), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
