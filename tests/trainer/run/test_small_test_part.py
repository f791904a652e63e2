"""A test part with fewer examples than ranks."""

import json
from pathlib import Path
from typing import Any

import pytest

OWN = """
import keras, numpy as np

def load():
    random = np.random.default_rng(1)
    x, y = random.random((24, 4)).astype("float32"), np.arange(24) % 3
    return (x[1:], y[1:]), (x[:1], y[:1])

def build(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Dense(classes, "softmax")])
"""


def test_ranks_without_a_test_example_have_the_metrics_of_the_others(run: Any, trainer: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    data, path = ("--dataset", "own:load"), {"PYTHONPATH": str(tmp_path)}
    flags = ("--model", "own:build", "--epochs", 2, "--batch-size", 2, "--tensorboard", "none", "--threads", 1)
    ended = run(3, trainer(*data, *flags, "--dir", tmp_path / "out", "--model-name", "small"), path)
    assert ended.code == 0, ended.stderr
    metrics = json.loads((tmp_path / "out" / "progress.jsonl").read_text().splitlines()[-1])["metrics"]
    model = tmp_path / "out" / "saved_models" / "small.keras"
    alone = json.loads(run(1, trainer("evaluate", "--model", model, *data, "--json"), path).stdout.splitlines()[-1])
    assert alone["samples"] == 1
    assert metrics["val_loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert metrics["val_accuracy"] == alone["accuracy"]
