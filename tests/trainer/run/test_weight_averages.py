"""Optimizers with moving averages of the weights, and metrics with a vector as value."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.support.arrays import array, arrays

MODEL = "keras_digits_trained_model"
OWN = """
import keras

def build(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes, "softmax", name="dense")]
    model = keras.Sequential([keras.Input(shape), *layers])
    optimizer = keras.optimizers.SGD(0.05, momentum=0.5, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    return model
"""


def test_validation_best_epoch_and_saved_models_use_the_averages_and_a_metric_of_each_class(
    train_digits: Any, tmp_path: Path
) -> None:
    import keras

    from horovodjob_trainer import data
    from horovodjob_trainer.data.arrays import Arrays

    out = tmp_path / "out"
    ended = train_digits(2, OWN, "--epochs", 2, "--no-augment", "--monitor", "val_f1_score", "--log-seconds", 0.01)
    assert ended.code == 0, ended.stderr
    assert "f1_score/0" not in ended.stdout
    (best,) = re.findall(r"^The best epoch is (\d) with val_f1_score ", ended.stdout, re.MULTILINE)
    for name, epoch in ((MODEL, 2), (f"{MODEL}-best", best)):
        checkpoint = out / f"checkpoint-{epoch}.h5"
        (average,) = [value for key, value in arrays(checkpoint).items() if "kernel" in key and "average" in key]
        np.testing.assert_array_equal(array(out / f"saved_models/{name}.h5", "kernel"), average)
        assert not np.array_equal(array(checkpoint, "kernel"), average)

    records = [json.loads(line)["metrics"] for line in (out / "progress.jsonl").read_text().splitlines()]
    first, last = (each["val_f1_score"] for each in records if "val_f1_score" in each)
    assert int(best) == (1 if first > last else 2)
    saved, test = keras.models.load_model(out / f"saved_models/{MODEL}.keras"), data.digits().test
    assert isinstance(test, Arrays)
    labels = keras.utils.to_categorical(test.labels, 10)
    measured = saved.evaluate(test.examples / np.float32(255), labels, verbose=0, return_dict=True)
    assert measured["loss"] == pytest.approx(records[-1]["val_loss"], rel=1e-4)
    scores = [records[-1][f"val_f1_score/{digit}"] for digit in range(10)]
    assert last == pytest.approx(np.mean(scores))


def test_a_class_without_examples_is_not_part_of_the_mean() -> None:
    from horovodjob_trainer.reporting.metric_values import all_values, mean_values, without_elements

    logs = {"loss": np.float32(0.5), "recall": np.array([1.0, math.nan, 0.5])}
    assert mean_values(logs) == {"loss": 0.5, "recall": 0.75}
    assert all_values(logs)["recall/2"] == 0.5
    assert without_elements(all_values(logs)) == mean_values(logs)
    assert math.isnan(mean_values({"recall": np.array([math.nan])})["recall"])


def test_the_weights_return_after_a_validation_bit_for_bit() -> None:
    import keras

    from horovodjob_trainer.run.optimization.weight_averages import averages_in_model

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.1, use_ema=True), "mean_squared_error")
    with averages_in_model(model):
        untrained = model.get_weights()
    assert any(weight.any() for weight in untrained), "before the first step, there are no averages"
    for _ in range(3):
        model.train_on_batch(np.ones((8, 2)), np.ones((8, 3)))
    before, slots = model.get_weights(), [np.array(each) for each in model.optimizer.variables]
    with averages_in_model(model):
        assert not np.array_equal(model.get_weights()[0], before[0])
    for value, expected in zip([*model.get_weights(), *model.optimizer.variables], [*before, *slots], strict=True):
        np.testing.assert_array_equal(value, expected)
