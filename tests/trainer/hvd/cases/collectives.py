"""Operations between the ranks, and the statistics of normalization layers, on two ranks."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from trainer.hvd.cases.shared import LOSS, are_equal, broadcast, data, flat, message, model, of_ranks, sgd

layers = keras.layers


def test_join_is_refused_after_an_allreduce() -> None:
    assert int(hvd.join()) in (0, 1)  # the first case
    hvd.allreduce(1.0)
    refusal = f"RuntimeError: rank {hvd.rank()}: hvd.join() does not support the grouped operations of this package: "
    assert message(hvd.join).startswith(refusal)


def test_variables_of_all_types_are_broadcast_except_the_states_of_seed_generators() -> None:
    keras.utils.set_random_seed(50 + hvd.rank())
    network = model(layers.Dropout(0.5))
    types = ["uint32", "uint64", "int64", "bool", "float16", "bfloat16", "complex64", "float64"]
    others = [tf.Variable(tf.cast([1 + hvd.rank(), 1], dtype)) for dtype in types]
    shaped = tf.Variable(tf.cast([[hvd.rank()] * 3] * 2, tf.uint32))
    hvd.broadcast_variables([*network.variables, *others, shaped], root_rank=1)
    assert not are_equal(network.layers[0].seed_generator.state)
    assert are_equal(flat(network.weights))
    assert [float(np.real(variable.numpy()[0])) for variable in others] == [2, 2, 2, 1, 2, 2, 2, 2]
    bits = hvd.broadcast(tf.cast([hvd.rank()], tf.uint32), root_rank=1).numpy()
    assert flat([shaped, bits]).tolist() == [1] * 7
    assert flat([hvd.allgather(tf.cast([hvd.rank()], tf.bfloat16)).numpy()]).tolist() == [0, 1]


def gradients(network: Any, layer: Any, inputs: Any, targets: Any, mask: Any) -> Any:
    """The gradients of a loss in training."""
    with tf.GradientTape() as tape:
        outputs = layer(network(inputs), training=True, mask=mask)
        loss = tf.reduce_mean(tf.square(outputs - targets))
    return tape.gradient(loss, [each.value for each in (*network.trainable_variables, *layer.trainable_variables)])


def test_synchronized_normalization_has_the_gradients_and_statistics_of_one_process() -> None:
    random, batch = np.random.default_rng(1), 6
    # The batches of the ranks have different means and variances, and as many examples that count.
    inputs = np.concatenate([random.normal(3 * each, 1 + each, (batch, 5, 3)) for each in range(2)]).astype(np.float32)
    targets = random.normal(size=(2 * batch, 5, 4)).astype(np.float32)
    own = slice(hvd.rank() * batch, (hvd.rank() + 1) * batch)
    for mask in (None, np.tile(random.random((batch, 5)) < 0.7, (2, 1))):
        results = []
        for synchronized, part in ((True, own), (False, slice(None))):
            keras.utils.set_random_seed(2)
            network = keras.Sequential([keras.Input((5, 3)), layers.Dense(4)])
            layer = layers.BatchNormalization(momentum=0.5, synchronized=synchronized)
            layer.build((None, 5, 4))
            step = tf.function(gradients) if synchronized else gradients
            found = step(network, layer, inputs[part], targets[part], None if mask is None else mask[part])
            if synchronized:
                found = hvd.grouped_allreduce(found, op=hvd.Average, name="gradients")
            results.append([*map(np.array, found), np.array(layer.moving_mean), np.array(layer.moving_variance)])
        for value, expected in zip(*results, strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-5)


def test_synchronized_normalization_keeps_the_variance_of_data_with_a_large_mean() -> None:
    inputs = np.random.default_rng(7).normal(1000, 1, (96, 6)).astype(np.float32)
    normalization = layers.BatchNormalization(synchronized=True, momentum=0.0)
    normalization.build((None, 1, 6))
    normalization(inputs[hvd.rank() :: 2][:, None], training=True, mask=tf.ones((48, 1), tf.bool))
    expected = inputs.astype(np.float64).var(axis=0)
    np.testing.assert_allclose(np.array(normalization.moving_variance), expected, rtol=2e-3)


def test_the_statistics_of_the_ranks_are_averaged_or_those_of_the_root_rank() -> None:
    features, labels = data()
    means, variances = (np.array(of_ranks(moment(features, axis=0))) for moment in (np.mean, np.var))
    mean = means.mean(axis=0)
    averages = [mean, (variances + means**2).mean(axis=0) - mean**2]
    for is_averaged, expected in ((True, averages), (False, [means[0], variances[0]])):
        adapted = layers.Normalization()
        adapted.adapt(features)
        network = model(adapted)
        network.compile(sgd(), LOSS, run_eagerly=True)
        network.fit(features, labels, callbacks=[broadcast(average_statistics=is_averaged)], verbose=0)
        found = np.array([flat([adapted.mean]), flat([adapted.variance])])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert are_equal(found)
    batch = model(layers.BatchNormalization())
    batch.compile(sgd(), LOSS, run_eagerly=True)
    batch.fit(features, labels, batch_size=4, callbacks=[broadcast(average_statistics=True)], verbose=0)
    assert are_equal(flat(batch.layers[0].weights))


class Seen(keras.layers.Layer):  # type: ignore[misc]
    """Counts its calls in an integer."""

    def build(self, shape: Any) -> None:
        self.steps = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        self.steps.assign_add(1 + hvd.rank())
        return inputs


def test_moving_statistics_of_several_types_are_averaged_only_when_they_are_read() -> None:
    """Those of a model of the trainer, without what is not averaged: an integer and a layer that is not trained."""
    from horovodjob_trainer.run.step import average_moving_statistics, build_step_function, moving_statistics

    frozen = layers.BatchNormalization(trainable=False)
    network = model(
        layers.BatchNormalization(), layers.Dense(4), Seen(), layers.BatchNormalization(dtype="bfloat16"), frozen
    )
    network.compile(sgd(), LOSS)
    network.optimizer.build(network.trainable_variables)
    hvd.broadcast_variables(network.weights)
    frozen.moving_mean.assign(tf.fill([4], float(hvd.rank())))
    step = build_step_function(network, [])
    batches = iter(tf.data.Dataset.from_tensors(data()).repeat())
    for _ in range(3):
        step(next(batches))
    averaged = moving_statistics(network)
    assert {each.dtype for each in averaged} == {"bfloat16", "float32"}
    own = of_ranks(flat(averaged))
    assert not np.array_equal(*own)
    average_moving_statistics(averaged)
    assert are_equal(flat(averaged))
    np.testing.assert_allclose(flat(averaged), np.mean(own, axis=0), rtol=0.01, atol=1e-3)
    untouched = of_ranks(flat([network.layers[2].steps, frozen.moving_mean]).tolist())
    assert untouched == [[3, 0, 0, 0, 0], [6, 1, 1, 1, 1]]
    assert are_equal(flat(network.trainable_variables))
