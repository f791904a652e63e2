"""Batch normalization with the statistics of all ranks."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

PROGRAM = Path(__file__).parent / "programs" / "synchronized_normalization.py"
OWN = """
import keras

def build(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(16), keras.layers.BatchNormalization(synchronized=True),
              keras.layers.Dense(classes, "softmax")]
    return keras.Sequential([keras.Input(shape), *layers])
"""
FLAGS = ("--optimizer", "sgd", "--learning-rate", 0.1, "--learning-rate-scaling", "none", "--schedule", "constant",
         "--max-steps", 20, "--epochs", 1, "--no-augment")  # fmt: skip


def arrays(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file["model_weights"].visititems(
            lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def test_ranks_compute_the_gradients_of_one_process(run: Any, preloaded_python: list[str]) -> None:
    ended = run(2, [*preloaded_python, str(PROGRAM)])
    assert ended.code == 0, ended.stderr


def test_two_ranks_train_as_one_rank_with_their_whole_batch(train_digits: Any, tmp_path: Path) -> None:
    weights = []
    for ranks, batch in ((2, 16), (1, 32)):
        ended = train_digits(ranks, OWN, *FLAGS, "--batch-size", batch)
        assert ended.code == 0, ended.stderr
        weights.append(arrays(tmp_path / "out/saved_models/keras_digits_trained_model.h5"))
    assert len(weights[0]) == 8
    for name, value in weights[0].items():
        np.testing.assert_allclose(value, weights[1][name], rtol=1e-2, atol=2e-4)
