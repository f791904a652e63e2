"""Optimizers with moving averages of the weights."""

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

MODEL = "keras_digits_trained_model"
OWN = """
import keras

def build(shape, classes):
    layers = [keras.layers.Flatten(), keras.layers.Dense(classes, "softmax", name="dense")]
    model = keras.Sequential([keras.Input(shape), *layers])
    optimizer = keras.optimizers.SGD(0.05, momentum=0.5, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def arrays(path: Path) -> dict[str, Any]:
    """The arrays of a saved model or checkpoint, by the last part of their names."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name.split("/")[-1]: item[()]}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def test_validation_best_epoch_and_saved_models_use_the_averages(
    train_digits: Any, run: Any, trainer: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ended = train_digits(2, OWN, "--epochs", 2)
    assert ended.code == 0, ended.stderr
    (best,) = re.findall(r"^The best epoch is (\d) ", ended.stdout, re.MULTILINE)
    for name, epoch in ((MODEL, 2), (f"{MODEL}-best", best)):
        checkpoint = arrays(out / f"checkpoint-{epoch}.h5")
        (average,) = [value for key, value in checkpoint.items() if "kernel" in key and "average" in key]
        np.testing.assert_array_equal(arrays(out / f"saved_models/{name}.h5")["kernel"], average)
        assert not np.array_equal(checkpoint["kernel"], average)

    records = [json.loads(line)["metrics"] for line in (out / "progress.jsonl").read_text().splitlines()]
    alone = run(1, trainer("evaluate", "--model", out / f"saved_models/{MODEL}.keras", "--dataset", "digits", "--json"))
    assert alone.code == 0, alone.stderr
    measured = json.loads(alone.stdout.splitlines()[-1])
    assert measured["loss"] == pytest.approx(records[-1]["val_loss"], rel=1e-4)


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
