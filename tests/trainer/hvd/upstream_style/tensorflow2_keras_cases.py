"""The behavior that Horovod tests in test/parallel/test_tensorflow2_keras.py, with the names of its tests, for Keras 3.

`test_sparse_as_dense`, `test_from_config` and `test_elastic_state` are those of `keras_cases`. Keras 3 has no legacy
optimizers.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd

layers, optimizers = keras.layers, keras.optimizers
PASSES, STEPS = 4, 10


class AddingOptimizer(keras.optimizers.Optimizer):  # type: ignore[misc]
    """Adds the gradient to the variable."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.assign_add(variable, gradient)


def test_train_model_lr_schedule() -> None:
    rate = 0.1 * hvd.size()
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2), layers.RepeatVector(3), layers.ReLU(threshold=0.5)])
    model.compile(loss="mse", optimizer=hvd.DistributedOptimizer(optimizers.Adam()), run_eagerly=True)
    callbacks = hvd.callbacks
    schedule = callbacks.LearningRateScheduleCallback
    rates: list[float] = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rates.append(float(model.optimizer.learning_rate))
    )
    used = [
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.MetricAverageCallback(),
        callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=5),
        schedule(initial_lr=rate, multiplier=1e-1, start_epoch=5, end_epoch=10),
        schedule(initial_lr=rate, multiplier=1e-2, start_epoch=10, end_epoch=15),
        schedule(initial_lr=rate, multiplier=lambda epoch: epoch, start_epoch=15, end_epoch=20),
        record,
    ]
    features, targets = np.random.random((10, 3)), np.random.random((10, 3, 2))
    history = model.fit(features, targets, batch_size=2, callbacks=used, epochs=20, verbose=0)
    last_rates = rates[4::5]
    assert all(each <= rate * 1.0001 for each in last_rates[:5])
    assert np.isclose(last_rates[4], rate)
    np.testing.assert_allclose(last_rates[6:10], [rate * 0.1**power for power in (1, 2, 3, 4)], rtol=1e-4)
    assert all(each <= rate * 0.01 * 1.0001 for each in last_rates[11:15])
    np.testing.assert_allclose(last_rates[15:], [rate * epoch for epoch in range(15, 20)], rtol=1e-5)
    np.testing.assert_allclose(history.history["loss"], hvd.broadcast(history.history["loss"], root_rank=0))


def test_sparse_as_dense_with_grad_aggregation() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.RMSprop(0.0001), sparse_as_dense=True, backward_passes_per_step=2)
    model = keras.Sequential([keras.Input((10,)), layers.Embedding(1000, 64)])
    model.compile(loss="mse", optimizer=optimizer)
    weights = []
    for _ in range(3):
        model.train_on_batch(np.random.randint(1000, size=(32, 10)), np.random.random((32, 10, 64)))
        weights.append(np.asarray(model.weights[0]))
    assert int(optimizer.iterations) == 1
    assert not np.array_equal(weights[0], weights[1])
    np.testing.assert_array_equal(weights[1], weights[2])


def test_grad_aggregation_with_inf_grad() -> None:
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(), backward_passes_per_step=2, sparse_as_dense=True)
    variable = keras.Variable(0.0)
    for gradient in (np.inf, 1.0, 1.0, 1.0, 1.0):
        optimizer.apply([tf.constant(gradient)], [variable])
    assert np.isfinite(np.asarray(optimizer._accumulated_gradients[0]))


def applied(
    average: bool, variables: list[Any], gradients: Callable[[], list[Any]], local: list[Any]
) -> list[list[Any]]:
    """The values of the variables after each step, in a traced function."""
    optimizer = hvd.DistributedOptimizer(
        AddingOptimizer(learning_rate=0.1),
        backward_passes_per_step=PASSES,
        average_aggregated_gradients=average,
        sparse_as_dense=True,
    )
    for variable in local:
        optimizer.register_local_var(variable)
    optimizer.build(variables)
    step = tf.function(lambda: optimizer.apply(gradients(), variables))
    found = []
    for number in range(STEPS):
        step()
        found.append([np.array(variable) for variable in variables])
        assert int(optimizer.iterations) == (number + 1) // PASSES
    return found


def check_aggregation(average: bool, is_local: bool) -> None:
    """Variables x and y with the loss x - (rank + 1) * y[0], of which the gradient of y is sparse."""
    x, y = keras.Variable([0.0]), keras.Variable([1.0, 2.0])
    factor = float(hvd.rank() + 1)

    def gradients() -> list[Any]:
        with tf.GradientTape() as tape:
            loss = x.value - factor * tf.gather(y.value, [0])
        return list(tape.gradient(loss, [x.value, y.value]))

    found = applied(average, [x, y], gradients, local=[x, y] if is_local else [])
    scale = (1 if average else PASSES) / (hvd.size() if is_local else 1)
    mean = factor if is_local else (hvd.size() + 1) / 2
    for number, (first, second) in enumerate(found):
        updates = (number + 1) // PASSES
        np.testing.assert_allclose(first, [updates * scale])
        np.testing.assert_allclose(second, [1.0 - updates * scale * mean, 2.0])


def test_gradient_aggregation() -> None:
    check_aggregation(average=True, is_local=False)
    check_aggregation(average=False, is_local=False)


def test_gradient_aggregation_with_local_vars() -> None:
    check_aggregation(average=True, is_local=True)
    check_aggregation(average=False, is_local=True)


def test_partial_distributed_optimizer() -> None:
    for count in range(3):
        constant = {
            name: keras.initializers.Constant(hvd.rank() + 1) for name in ("kernel_initializer", "bias_initializer")
        }
        model = keras.Sequential([keras.Input((3,)), layers.Dense(2, **constant), layers.RepeatVector(3)])
        model.add(layers.TimeDistributed(layers.Dense(3, **constant)))
        features, targets = np.random.random((1, 3)), np.random.random((1, 3, 3))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features) - targets) ** 2)
        own = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        local = model.layers[:count]
        before = [np.array(variable) for variable in model.trainable_variables]
        optimizer = hvd.PartialDistributedOptimizer(optimizers.SGD(1.0), sparse_as_dense=True, local_layers=local)
        optimizer.apply(own, model.trainable_variables)
        local_ids = {id(variable) for layer in local for variable in layer.trainable_weights}
        for variable, old, gradient in zip(model.trainable_variables, before, own, strict=True):
            used = old - np.array(variable)
            if id(variable) in local_ids:
                np.testing.assert_allclose(hvd.size() * used, gradient, rtol=1e-4)
            else:
                assert not np.allclose(used, gradient)


def test_broadcast_global_variables_callback_with_local_vars() -> None:
    root = hvd.size() - 1
    initializer = keras.initializers.Constant(hvd.rank())
    frozen = {"kernel_initializer": initializer, "bias_initializer": initializer, "trainable": False}
    dense = [layers.Dense(3, **frozen) for _ in range(4)]
    model = keras.Sequential([keras.Input((3,)), *dense, layers.RepeatVector(3), layers.Dense(3, **frozen)])
    model.compile(loss="mse", optimizer=hvd.DistributedOptimizer(optimizers.SGD()), run_eagerly=True)
    local = list(model.layers[0].variables)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=root, local_variables=local)]
    model.fit(np.random.random((1, 3)), np.random.random((1, 3, 3)), callbacks=callbacks, verbose=0)
    for variable in model.variables:
        is_local = any(variable is each for each in local)
        np.testing.assert_array_equal(variable, np.full(variable.shape, hvd.rank() if is_local else root))
