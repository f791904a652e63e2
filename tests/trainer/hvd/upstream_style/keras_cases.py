"""The behavior that Horovod tests in test/parallel/test_keras.py, with the names of its tests, for Keras 3."""

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from horovodjob_trainer import hvd

layers, optimizers = keras.layers, keras.optimizers


class CustomRMSprop(keras.optimizers.RMSprop):  # type: ignore[misc]
    """An optimizer that Keras does not know."""


def values(variables: Any) -> list[Any]:
    return [np.asarray(variable).tolist() for variable in variables]


def compiled(optimizer: Any) -> Any:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2), layers.RepeatVector(3)])
    model.add(layers.TimeDistributed(layers.Dense(3)))
    model.compile(loss="mse", optimizer=optimizer, metrics=["categorical_accuracy"], run_eagerly=True)
    return model


def trained(optimizer: Any) -> Any:
    model = compiled(optimizer)
    model.train_on_batch(np.random.random((1, 3)), np.random.random((1, 3, 3)))
    return model


def check_loaded(optimizer: Any, **arguments: Any) -> None:
    model = trained(hvd.DistributedOptimizer(optimizer))
    with tempfile.TemporaryDirectory() as directory:
        model.save(Path(directory, "model.keras"))
        loaded = hvd.load_model(Path(directory, "model.keras"), **arguments)
    assert hvd.is_distributed(loaded.optimizer)
    assert loaded.optimizer.__class__.__name__ == type(optimizer).__name__
    assert float(loaded.optimizer.learning_rate) == float(optimizer.learning_rate)
    assert values(loaded.optimizer.variables) == values(optimizer.variables)


def test_sparse_as_dense() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.RMSprop(0.0001), sparse_as_dense=True)
    model = keras.Sequential([keras.Input((10,)), layers.Embedding(1000, 64)])
    model.compile(loss="mse", optimizer=optimizer)
    model.train_on_batch(np.random.randint(1000, size=(32, 10)), np.random.random((32, 10, 64)))


def test_load_model() -> None:
    check_loaded(optimizers.RMSprop(0.0001))


def test_load_model_custom_optimizers() -> None:
    check_loaded(CustomRMSprop(0.0001), custom_optimizers=[CustomRMSprop])


def test_load_model_custom_objects() -> None:
    check_loaded(CustomRMSprop(0.0001), custom_objects={"CustomRMSprop": CustomRMSprop})


def test_load_model_broadcast() -> None:
    def optimizer() -> Any:
        return hvd.DistributedOptimizer(optimizers.SGD(0.01 * hvd.size(), momentum=0.9))

    model = trained(optimizer())
    if hvd.rank() == 0:
        with tempfile.TemporaryDirectory() as directory:
            model.save(Path(directory, "model.keras"))
            model = hvd.load_model(Path(directory, "model.keras"))
    else:
        model = compiled(optimizer())
    slots = 4
    assert (len(model.optimizer.variables) > slots) == (hvd.rank() == 0)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(np.zeros((1, 3)), np.zeros((1, 3, 3)), callbacks=callbacks, epochs=0, initial_epoch=1, verbose=0)
    states = hvd.allgather_object(values([*model.weights, *model.optimizer.variables]))
    assert states[0] == states[1]
    assert len(model.optimizer.variables) > slots


def test_from_config() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.Adam())
    config = optimizer.get_config()
    for copied in (optimizer.from_config(config), optimizer.__class__.from_config(config)):
        assert copied.get_config() == config
        assert hvd.is_distributed(copied)


def test_elastic_state() -> None:
    def model(kernel: list[list[float]], bias: list[float]) -> Any:
        built = keras.Sequential([layers.Dense(2, activation="softmax")])
        built.build((2, 2))
        built.set_weights([np.array(kernel), np.array(bias)])
        return built

    own = 1.0 + hvd.rank()
    first = model([[own, own], [own, own]], [own, own])
    other = model([[1.0, 2.0], [3.0, 4.0]], [0.0, 0.0]).get_weights()
    optimizer = optimizers.Adam(0.001 * hvd.size())
    state = hvd.elastic.KerasState(first, optimizer, batch=20 + hvd.rank(), epoch=10 + hvd.rank())

    state.sync()
    synchronized = values(first.get_weights())
    assert synchronized == [[[1.0, 1.0], [1.0, 1.0]], [1.0, 1.0]]
    assert (state.batch, state.epoch) == (20, 10)

    first.set_weights(other)
    state.batch, state.epoch = 21, 11
    state.restore()
    assert values(first.get_weights()) == synchronized
    assert (state.batch, state.epoch) == (20, 10)

    first.set_weights(other)
    state.batch, state.epoch = 21, 11
    state.commit()
    state.restore()
    assert values(first.get_weights()) == values(other)
    assert (state.batch, state.epoch) == (21, 11)
