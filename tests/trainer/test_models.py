"""The networks: image sizes, numbers of classes, models of the user and error messages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import models
from horovodjob_trainer.errors import ModelError

MODULE = """
import keras

def network(classes):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(classes)])

def compiled(shape):
    model = keras.Sequential([keras.Input(shape), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def nothing():
    return None

def wants(depth):
    return None
"""


@pytest.mark.parametrize(
    ("name", "shape", "classes", "weights"),
    [
        ("tutorial", (32, 32, 3), 10, 1_250_858),  # as the Keras example
        ("tutorial", (10, 14, 1), 3, None),
        ("resnet18", (64, 64, 3), 1000, 11_699_112),  # 11,689,512 of the paper's layers, 9,600 moving statistics
        ("resnet50", (40, 40, 1), 7, None),
    ],
)
def test_a_network_outputs_a_probability_for_each_class(
    name: str, shape: Any, classes: int, weights: int | None
) -> None:
    model = models.build_model(name, shape=shape, classes=classes)
    outputs = model(np.random.default_rng(0).random((2, *shape)).astype(np.float32)).numpy()
    assert outputs.shape == (2, classes)
    np.testing.assert_allclose(outputs.sum(axis=1), 1, rtol=1e-5)
    assert weights in (None, model.count_params())


@pytest.mark.parametrize(("name", "side"), [("tutorial", 10), ("resnet18", 12)])
def test_a_network_normalizes_the_channels_of_an_image_first(name: str, side: int) -> None:
    import keras

    model = models.build_model(name, shape=(side, side, 3), classes=3, normalize="0.5,0.4,0.3:0.25,0.2,0.5")
    first, second = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)][:2]
    assert second.input is first.output
    batch = np.random.default_rng(0).random((2, side, side, 3)).astype(np.float32)
    expected = (batch - np.array([0.5, 0.4, 0.3])) / np.array([0.25, 0.2, 0.5])
    np.testing.assert_allclose(keras.Model(model.inputs[0], first.output)(batch), expected, rtol=1e-5, atol=1e-6)


def test_means_and_deviations_are_for_all_channels_or_for_each() -> None:
    assert models.channel_statistics("imagenet") == ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    models.build_model("tutorial", shape=(10, 10, 3), classes=3, normalize="0.5:0.25")
    with pytest.raises(ModelError, match="--normalize imagenet has values for 3 channels, and the images have 1; use"):
        models.build_model("tutorial", shape=(10, 10, 1), classes=3, normalize="imagenet")


def test_without_dropout_training_and_prediction_agree() -> None:
    batch = np.ones((2, 32, 32, 3), np.float32)
    fixed = models.build_model("tutorial", shape=(32, 32, 3), classes=10, dropout=False)
    np.testing.assert_array_equal(fixed(batch, training=True), fixed(batch, training=False))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "what"),
    [
        ("tutorial", (9, 32, 3), 10, "needs images of at least 10 x 10"),
        ("tutorial", (5,), 10, "the shape (5,)"),
        ("resnet18", (32, 32, 3), None, "needs classes"),
        ("resnet50", (20, 20, 3), 10, "at least 32 x 32"),
        ("vgg", (32, 32, 3), 10, "there is no model 'vgg'; choose tutorial, resnet18, resnet50, or"),
    ],
)
def test_data_that_does_not_fit_a_network_is_rejected(name: str, shape: Any, classes: Any, what: str) -> None:
    with pytest.raises(ModelError) as raised:
        models.build_model(name, shape=shape, classes=classes)
    assert what in str(raised.value)


def test_a_function_of_the_user_gets_the_arguments_that_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    assert models.build_model("own_model:network", shape=(4,), classes=6).output_shape == (None, 6)
    assert models.build_model("own_model:compiled", shape=(3,), classes=None).compiled
    assert models.model_error("own_model:network") is None
    assert "has no 'other'" in str(models.model_error("own_model:other"))
    assert "there is no module own_modal" in str(models.model_error("own_modal:network"))
    with pytest.raises(ModelError, match=r"own_model:nothing returned builtins.NoneType, not a keras.Model"):
        models.build_model("own_model:nothing", shape=(4,), classes=6)
    with pytest.raises(Exception, match="own_model:wants requires 'depth'; available are shape, classes, dropout"):
        models.build_model("own_model:wants", shape=(4,), classes=6)
