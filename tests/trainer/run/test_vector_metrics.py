"""Metrics with a vector as value."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PER_CLASS = """
import keras

def build(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")]
    model = keras.Sequential([keras.Input(shape), *layers])
    model.compile(keras.optimizers.Adam(0.01), "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    return model
"""


def test_two_ranks_train_with_a_metric_of_each_class_and_save_its_best_epoch(train_digits: Any, tmp_path: Path) -> None:
    ended = train_digits(2, PER_CLASS, "--epochs", 2, "--monitor", "val_f1_score", "--log-seconds", 0.01)
    assert ended.code == 0, ended.stderr
    assert "The best epoch is 2 with val_f1_score " in ended.stdout
    assert "f1_score/0" not in ended.stdout
    records = [json.loads(line)["metrics"] for line in (tmp_path / "out/progress.jsonl").read_text().splitlines()]
    first, last = (each["val_f1_score"] for each in records if "val_f1_score" in each)
    assert first < last
    scores = [records[-1][f"val_f1_score/{digit}"] for digit in range(10)]
    assert records[-1]["val_f1_score"] == pytest.approx(np.mean(scores))
    assert min(scores) > 0.5


def test_an_evaluation_prints_the_mean_and_the_elements(run: Any, trainer: Any, tmp_path: Path) -> None:
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.compile("sgd", "mean_squared_error", metrics=[keras.metrics.R2Score(class_aggregation=None)])
    model.save(tmp_path / "model.keras")
    inputs = np.random.default_rng(1).random((40, 2)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=inputs, y=inputs)
    flags = ("--model", tmp_path / "model.keras", "--dataset", "npz", "--data", tmp_path / "data.npz", "--json")
    ended = run(1, trainer("evaluate", *flags))
    assert ended.code == 0, ended.stderr
    measured = json.loads(ended.stdout.splitlines()[-1])
    assert measured["r2_score"] == pytest.approx((measured["r2_score/0"] + measured["r2_score/1"]) / 2)


def test_a_class_without_examples_is_not_part_of_the_mean() -> None:
    from horovodjob_trainer.reporting.metric_values import all_values, mean_values, without_elements

    logs = {"loss": np.float32(0.5), "recall": np.array([1.0, math.nan, 0.5])}
    assert mean_values(logs) == {"loss": 0.5, "recall": 0.75}
    assert all_values(logs)["recall/2"] == 0.5
    assert without_elements(all_values(logs)) == mean_values(logs)
    assert math.isnan(mean_values({"recall": np.array([math.nan])})["recall"])


def test_a_progress_callback_reports_the_mean(tmp_path: Path) -> None:
    import keras

    from horovodjob_trainer.callbacks import ProgressCallback

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    model.fit(np.zeros((4, 2)), np.eye(3)[[0, 1, 2, 0]], verbose=0, callbacks=[ProgressCallback(directory=tmp_path)])
    metrics = json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[-1])["metrics"]
    assert metrics["f1_score"] == pytest.approx(np.mean([metrics[f"f1_score/{label}"] for label in range(3)]))
