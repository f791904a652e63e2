"""Metrics on several ranks are those of one process with all examples, also with fewer examples than ranks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

OWN = """
import keras

@keras.saving.register_keras_serializable("own")
class Largest(keras.metrics.Metric):
    '''A metric of a user, whose state is not a sum.'''

    def __init__(self, name="largest", **others):
        super().__init__(name=name, **others)
        self.value = self.add_variable((), "zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self):
        return self.value

def build(shape, classes):
    layers = [keras.layers.Dense(1, "sigmoid", kernel_initializer="ones")]
    model = keras.Sequential([keras.Input(shape), *layers])
    metrics = [keras.metrics.Recall(), keras.metrics.AUC(), keras.metrics.RootMeanSquaredError(name="rms"), "accuracy",
               Largest()]
    model.compile(keras.optimizers.SGD(1e-12), "binary_crossentropy", metrics=metrics)
    return model
"""
NAMES = ("recall", "auc", "rms", "accuracy")


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Rank 0 of two tests every second example, of 101. Nearly all positive examples are its own."""
    random = np.random.default_rng(5)
    inputs = random.normal(0, 2, (101, 1)).astype(np.float32)
    labels = ((np.arange(101) % 2 == 0) & (random.random(101) < 0.8)) | (random.random(101) < 0.1)
    parts = {"x_train": inputs, "x_test": inputs, "y_train": labels, "y_test": labels}
    np.savez(tmp_path / "data.npz", **{name: part.astype(np.float32) for name, part in parts.items()})
    return tmp_path / "data.npz"


def test_ranks_together_compute_the_metrics_of_all_examples(
    run: Any, trainer: Any, examples: Path, tmp_path: Path
) -> None:
    import keras

    (tmp_path / "own.py").write_text(OWN)
    flags = ("--dataset", "npz", "--data", examples, "--model", "own:build", "--epochs", 1, "--threads", 1,
             "--tensorboard", "none", "--dir", tmp_path / "out")  # fmt: skip
    ended = run(2, trainer(*flags), {"PYTHONPATH": str(tmp_path)})
    assert ended.code == 0, ended.stderr
    metrics = json.loads((tmp_path / "out/progress.jsonl").read_text().splitlines()[-1])["metrics"]

    with np.load(examples) as data:
        inputs, labels = data["x_test"], data["y_test"]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, "sigmoid", kernel_initializer="ones")])
    counting = [keras.metrics.Recall(name="recall"), keras.metrics.AUC(name="auc")]
    known = [*counting, keras.metrics.RootMeanSquaredError(name="rms"), "accuracy"]
    model.compile("sgd", "binary_crossentropy", metrics=known)
    expected = model.evaluate(inputs, labels, verbose=0, return_dict=True)
    for name in NAMES:
        assert metrics[f"val_{name}"] == pytest.approx(expected[name], rel=1e-4)
    assert 0.5 < metrics["val_largest"] <= 1


SMALL = """
import keras, numpy as np

def load():
    random = np.random.default_rng(1)
    x, y = random.random((24, 4)).astype("float32"), np.arange(24) % 3
    return (x[1:], y[1:]), (x[:1], y[:1])

def build(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Dense(classes, "softmax")])
"""


def test_ranks_without_a_test_example_have_the_metrics_of_the_others(run: Any, trainer: Any, tmp_path: Path) -> None:
    import keras

    (tmp_path / "small.py").write_text(SMALL)
    flags = ("--dataset", "small:load", "--model", "small:build", "--epochs", 1, "--batch-size", 2, "--threads", 1,
             "--tensorboard", "none", "--dir", tmp_path)  # fmt: skip
    ended = run(2, trainer(*flags, "--model-name", "small"), {"PYTHONPATH": str(tmp_path)})
    assert ended.code == 0, ended.stderr
    metrics = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[-1])["metrics"]
    model = keras.models.load_model(tmp_path / "saved_models" / "small.keras")
    example = np.random.default_rng(1).random((24, 4)).astype(np.float32)[:1]
    alone = model.evaluate(example, np.zeros(1), verbose=0, return_dict=True)
    assert (metrics["val_loss"], metrics["val_accuracy"]) == pytest.approx((alone["loss"], alone["accuracy"]), rel=1e-5)
