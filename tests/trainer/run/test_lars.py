"""The optimizer LARS: the formula of its paper, and what else an optimizer of the trainer can do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

LEARNING_RATE, MOMENTUM, DECAY, TRUST = 2.0, 0.9, 0.01, 0.001
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def keras() -> Any:
    import keras

    return keras


def lars(**settings: Any) -> Any:
    from horovodjob_trainer.run.optimization.lars import LARS

    return LARS(LEARNING_RATE, MOMENTUM, weight_decay=DECAY, **settings)


def algorithm_1(weights: Array, gradients: list[Array]) -> Array:
    """The weights of a layer after these gradients, with the local learning rate of You et al. 2017."""
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        norm = np.linalg.norm(weights)
        local_rate = TRUST * norm / (np.linalg.norm(gradient) + DECAY * norm)
        velocity = MOMENTUM * velocity + LEARNING_RATE * local_rate * (gradient + DECAY * weights)
        weights = weights - velocity
    return weights


def test_lars_computes_the_formula_of_its_paper_and_trains_biases_as_sgd_does(keras: Any) -> None:
    random = np.random.default_rng(0)
    start, gradients = random.normal(size=(4, 3)), [random.normal(size=(4, 3)) for _ in range(5)]
    kernel, bias = keras.Variable(start, dtype="float64"), keras.Variable(np.ones(3), dtype="float64")
    plain, alone = keras.Variable(np.ones(3), dtype="float64"), keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
    optimizer = lars()
    optimizer.exclude_from_weight_decay([bias])
    for gradient in gradients:
        optimizer.apply([gradient, gradient[0]], [kernel, bias])
        alone.apply([gradient[0]], [plain])
    np.testing.assert_allclose(kernel, algorithm_1(start, gradients), rtol=1e-6)
    np.testing.assert_allclose(bias, plain, rtol=1e-6)


def test_weights_and_gradients_of_zero_do_not_become_nan(keras: Any) -> None:
    zeros, ones = keras.Variable(np.zeros((2, 2))), keras.Variable(np.ones((2, 2)))
    lars().apply([np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)], [zeros, ones])
    np.testing.assert_allclose(zeros, -LEARNING_RATE, rtol=1e-6)  # else the layer would never train
    np.testing.assert_allclose(ones, 1 - LEARNING_RATE * TRUST, rtol=1e-6)


def test_a_saved_model_contains_lars_with_its_settings(keras: Any, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(lars(trust_coefficient=0.02), "mean_squared_error")
    model.optimizer.build(model.trainable_variables)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        loaded = keras.models.load_model(tmp_path / name).optimizer
        assert (type(loaded).__name__, loaded.trust_coefficient, loaded.weight_decay) == ("LARS", 0.02, DECAY)
