"""Kinds of models and optimizers that scripts use, on two ranks: synchronized, or with an error or a warning."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd
from trainer.hvd.cases.shared import (
    DIRECTORY,
    LOSS,
    are_equal,
    broadcast,
    data,
    flat,
    message,
    model,
    of_ranks,
    sgd,
    state,
)

layers, optimizers = keras.layers, keras.optimizers
WORDS = 9


class LateModel(keras.Model):  # type: ignore[misc]
    """Builds its layers in the first batch, in its own train_step."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = layers.Dense(5, "tanh"), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.last(self.hidden(inputs))

    def tape(self) -> Any:
        return tf.GradientTape()

    def train_step(self, data: Any) -> Any:
        features, labels = data
        with self.tape() as tape:
            loss = LOSS(labels, self(features, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class OwnTape(LateModel):
    """Reduces the gradients with a tape, for a plain optimizer."""

    def tape(self) -> Any:
        return hvd.DistributedGradientTape(tf.GradientTape())


def test_models_that_the_first_batch_builds_are_synchronized() -> None:
    """On rank 0 one of them earlier, as if it had loaded weights."""
    ahead, tape = LateModel(), OwnTape()
    if hvd.rank() == 0:
        ahead(np.zeros((1, 6), np.float32))
    ahead.compile(sgd())
    tape.compile(optimizers.SGD(0.1))
    for network in (ahead, tape):
        network.fit(*data(8), batch_size=4, callbacks=[broadcast()], verbose=0)
        assert are_equal(state(network))


class Pair(keras.Model):  # type: ignore[misc]
    """Two networks of equal shapes, each with its own optimizer, which may run their allreduce at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers.Dense(3), layers.Dense(3)
        self.other = accumulating()

    def call(self, inputs: Any) -> Any:
        return self.first(inputs) + self.second(inputs)

    def train_step(self, data: Any) -> Any:
        features, labels = data
        with tf.GradientTape(persistent=True) as tape:
            loss = LOSS(labels, self(features, training=True))
        for optimizer, layer in ((self.optimizer, self.first), (self.other, self.second)):
            optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return {"loss": loss}


def accumulating() -> Any:
    return hvd.DistributedOptimizer(optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2))


def test_two_optimizers_of_one_model_do_not_mix_their_gradients() -> None:
    network = Pair()
    network.compile(accumulating())
    network.fit(*data(), batch_size=4, epochs=2, callbacks=[broadcast()], verbose=0)
    assert are_equal(np.concatenate([state(network), flat(network.other.variables)]))


def single_layer() -> Any:
    return keras.Sequential([keras.Input((1,)), layers.Dense(1, use_bias=False, kernel_initializer="zeros")])


def with_model(optimizer: Any, copied: Callable[[Any], Any]) -> Any:
    network = single_layer()
    network.compile(optimizer, "mse")
    return copied(network).optimizer


def compiled_like(network: Any) -> Any:
    other = single_layer()
    other.compile_from_config(network.get_compile_config())
    return other


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    "from_config": lambda optimizer: optimizer.from_config(optimizer.get_config()),
    "from_config of the type": lambda optimizer: type(optimizer).from_config(optimizer.get_config()),
    "constructor": lambda optimizer: optimizers.SGD(**optimizer.get_config()),
    "deepcopy of the config": lambda optimizer: optimizers.SGD(**copy.deepcopy(optimizer.get_config())),
    "serialize": lambda optimizer: optimizers.deserialize(optimizers.serialize(optimizer)),
    "clone_model": lambda optimizer: with_model(optimizer, keras.models.clone_model),
    "compile_from_config": lambda optimizer: with_model(optimizer, compiled_like),
    "deepcopy of the model": lambda optimizer: with_model(optimizer, copy.deepcopy),
    "pickle of the model": lambda optimizer: with_model(optimizer, lambda each: pickle.loads(pickle.dumps(each))),
    "loss scaling": lambda optimizer: optimizers.deserialize(
        optimizers.serialize(optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0))
    ),
}


def test_a_copy_of_a_distributed_optimizer_is_distributed() -> None:
    """A step with each copy, with a gradient of 1 on rank 0 and 3 on rank 1."""
    for name, copied in COPIES.items():
        with warnings.catch_warnings(action="ignore"):  # Keras warns that a copy of a built optimizer has no slots
            optimizer = copied(hvd.DistributedOptimizer(optimizers.SGD(1.0)))
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        variable = inner._trainable_variables[0] if inner.built else keras.Variable([[0.0]])
        optimizer.apply([tf.constant([[1.0 + 2 * hvd.rank()]])], [variable])
        assert float(variable.numpy()[0, 0]) == -2.0, name


class Words(keras.Model):  # type: ignore[misc]
    """A model-parallel embedding: each rank has a table of a different size."""

    def __init__(self) -> None:
        super().__init__()
        self.table = layers.Embedding(WORDS + hvd.rank(), 4)
        self.pool, self.last = layers.GlobalAveragePooling1D(), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.last(self.pool(self.table(inputs)))


def test_local_layers_can_have_different_shapes_and_their_gradients_stay_on_their_rank() -> None:
    random = np.random.default_rng(hvd.rank())
    words, labels = random.integers(0, WORDS, (16, 4)), random.integers(0, 3, 16)
    network = Words()
    network(words)
    optimizer = hvd.PartialDistributedOptimizer(optimizers.SGD(0.1, momentum=0.9), local_layers=network.table)
    network.compile(optimizer, LOSS)
    network.fit(words, labels, batch_size=4, callbacks=[broadcast()], verbose=0)
    assert of_ranks(network.table.embeddings.shape) == [(9, 4), (10, 4)]
    assert of_ranks(optimizer.momentums[0].shape) == [(9, 4), (10, 4)]
    assert are_equal(flat(network.last.weights))
    with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=network.table) as tape:
        loss = LOSS(labels, network(words))
    local, shared = tape.get_local_and_global_gradients(loss, network.trainable_variables)
    assert [source is network.table.embeddings for source, _ in local] == [True]
    assert are_equal(flat(gradient for _, gradient in shared))
    refusal = "call hvd.PartialDistributedOptimizer(optimizer, local_layers=...)"
    assert refusal in message(lambda: optimizer.from_config(optimizer.get_config()))


def test_the_gradients_of_local_layers_have_the_scale_of_the_mean_over_the_ranks() -> None:
    keras.utils.set_random_seed(3)
    network = model(layers.Dense(2))
    features, labels = data()
    with tf.GradientTape() as tape:
        loss = LOSS(labels, network(features))
    own = tape.gradient(loss, [variable.value for variable in network.trainable_variables])
    before = [np.array(variable) for variable in network.trainable_variables]
    optimizer = hvd.PartialDistributedOptimizer(optimizers.SGD(1.0), local_layers=network.layers[0])
    optimizer.apply(own, network.trainable_variables)
    for number, (variable, old, gradient) in enumerate(zip(network.trainable_variables, before, own, strict=True)):
        used = old - np.array(variable)
        expected = gradient / 2 if number < 2 else np.mean(of_ranks(np.array(gradient)), axis=0)
        np.testing.assert_allclose(used, expected, rtol=1e-4, atol=1e-6)


def test_the_broadcast_has_a_root_rank_and_leaves_out_frozen_and_local_variables() -> None:
    keras.utils.set_random_seed(60 + hvd.rank())
    network = model(layers.Dense(4), layers.Dense(4, trainable=False))
    network.compile(sgd(), LOSS, run_eagerly=True)
    local = network.layers[0].bias
    local.assign(tf.fill(local.shape, float(hvd.rank())))
    before = of_ranks(network.get_weights())
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=1, local_variables=[local])
    network.fit(*data(), callbacks=[callback], epochs=0, initial_epoch=1, verbose=0)
    for number, variable in enumerate(network.weights):
        root = hvd.rank() if variable is local else 1
        np.testing.assert_array_equal(variable, before[root][number])


def test_a_frozen_layer_is_not_exchanged_and_a_group_can_have_several_types() -> None:
    keras.utils.set_random_seed(3)
    kinds = [layers.Dense(6, trainable=False), layers.Dense(5, dtype="float64"), layers.Dense(4, dtype="bfloat16")]
    network = model(*kinds)
    frozen = network.layers[0].bias
    frozen.assign(tf.fill([6], float(hvd.rank())))
    shared = network.trainable_variables
    network.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1), groups=[shared]), LOSS, run_eagerly=True)
    before = flat(shared)
    for _ in range(2):
        network.train_on_batch(*data())
    assert flat([frozen]).tolist() == [hvd.rank()] * 6
    assert are_equal(flat(shared))
    assert not np.array_equal(before, flat(shared))


def warned(network: Any, optimizer: Any, callbacks: Any) -> list[str]:
    """The warnings of a training that begins with different weights on each rank."""
    for number, weight in enumerate(network.trainable_variables):
        weight.assign(weight + number + hvd.rank())
    with warnings.catch_warnings(record=True, action="always") as caught:
        network.compile(optimizer, LOSS, run_eagerly=True)
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.set_model(network)
        network.fit(*data(8), batch_size=8, callbacks=callbacks, verbose=0)
    return [str(each.message) for each in caught if "Horovod" in str(each.message)]


def test_rank_0_warns_once_about_a_training_that_does_not_synchronize() -> None:
    callback_list = keras.callbacks.CallbackList([broadcast()], add_history=True, steps=1)
    averaged = broadcast(average_statistics=True)
    correct = [
        warned(model(), sgd(), [broadcast()]),
        warned(model(), sgd(), callback_list),
        warned(OwnTape(), optimizers.SGD(0.1), [broadcast()]),
        warned(model(layers.BatchNormalization()), sgd(), [averaged]),
    ]
    assert correct == [[]] * 4
    alone, again = (warned(model(), optimizers.SGD(0.1), [broadcast()]) for _ in range(2))
    weights = warned(model(), sgd(), [])
    statistics = warned(model(layers.BatchNormalization()), sgd(), [broadcast()])
    assert again == []
    if hvd.rank() == 1:
        assert alone == weights == statistics == []
        return
    assert "fit trains on 2 ranks, and each rank trains alone" in alone[0]
    assert "Wrap the optimizer with hvd.DistributedOptimizer" in alone[0]
    assert "the weights differ between the ranks (" in weights[0]
    assert "pass hvd.callbacks.BroadcastGlobalVariablesCallback(0) to fit" in weights[0]
    assert "moving_mean and 1 more" in statistics[0]
    assert "average_statistics=True" in statistics[0]


def test_ranks_with_different_steps_or_metrics_get_an_error_with_both_numbers() -> None:
    network, average = model(), hvd.callbacks.MetricAverageCallback()
    network.compile(sgd(), LOSS, run_eagerly=True)
    steps = message(lambda: network.fit(*data(8 + 4 * hvd.rank()), batch_size=4, callbacks=[average], verbose=0))
    assert steps.startswith(
        "ValueError: rank 0 has 2 steps per epoch and rank 1 has 3; every step needs all ranks, so call fit with"
    )
    validation = data() if hvd.rank() == 0 else None
    assert message(lambda: network.fit(*data(), callbacks=[average], validation_data=validation, verbose=0)) == (
        "ValueError: MetricAverageCallback: epoch 1 has the metrics loss, val_loss on rank 0 and loss on rank 1; "
        "give all ranks the same metrics and validation"
    )


def test_an_unsupported_use_raises_an_error_that_names_it() -> None:
    plain_sgd, distributed = optimizers.SGD, hvd.DistributedOptimizer
    warm_up, kept = hvd.callbacks.LearningRateWarmupCallback, hvd.elastic.KerasState

    def one(**arguments: Any) -> Any:
        return distributed(plain_sgd(), **arguments)

    twice, passes = one(), plain_sgd(gradient_accumulation_steps=2)
    built = plain_sgd()
    built.build(model().trainable_variables)
    several = optimizers.MultiOptimizer(optimizers.OptimizerMap(distributed(plain_sgd())))
    compiled, plain = model(), model()
    compiled.compile(distributed(plain_sgd()), LOSS, jit_compile=True)
    file = DIRECTORY / f"plain-{hvd.rank()}.keras"
    plain.save(file)
    ninth: list[Any] = [None, "", "", hvd.Compression.none, False, 1.0, hvd.Average, 2]
    none: Any = None
    uses: list[tuple[str, Callable[[], Any]]] = [
        ("TypeError: DistributedOptimizer needs a Keras 3 optimizer, not str", lambda: distributed("sgd")),
        ("ValueError: this optimizer is already distributed", lambda: distributed(twice)),
        ("ValueError: this optimizer is already distributed", lambda: distributed(several)),
        ("ValueError: op must be hvd.Average or hvd.Sum", lambda: one(op=hvd.Adasum)),
        ("ValueError: gradient_predivide_factor needs op", lambda: one(op=hvd.Sum, gradient_predivide_factor=2.0)),
        ("ValueError: groups must be a positive integer or a list of lists", lambda: one(groups=0.5)),
        ("ValueError: bucket_bytes must be a positive integer, not 0", lambda: one(bucket_bytes=0)),
        ("ValueError: use either groups (or num_groups) or bucket_bytes", lambda: one(num_groups=2, bucket_bytes=9)),
        ("ValueError: backward_passes_per_step must be at least 1", lambda: one(backward_passes_per_step=0)),
        ("ValueError: backward_passes_per_step needs", lambda: distributed(built, backward_passes_per_step=2)),
        ("ValueError: use either backward_passes_per_step or", lambda: distributed(passes, backward_passes_per_step=2)),
        ("TypeError: DistributedOptimizer() takes", lambda: distributed(plain_sgd(), *ninth)),
        ("RuntimeError: XLA cannot compile the gradient allreduce", lambda: compiled.train_on_batch(*data(8))),
        (
            "TypeError: DistributedGradientTape needs a tf.GradientTape",
            lambda: hvd.DistributedGradientTape(plain_sgd()),
        ),
        (f"ValueError: {file} was saved without an optimizer", lambda: hvd.load_model(file)),
        ("ValueError: legacy_opts=True needs Keras 2", lambda: hvd.load_model(file, legacy_opts=True)),
        ("NotImplementedError: Keras 3 has no list of all variables", lambda: hvd.broadcast_global_variables(0)),
        ("NotImplementedError: SyncBatchNormalization does not work with Keras 3", hvd.SyncBatchNormalization),
        ("NotImplementedError: BestModelCheckpoint is not supported", hvd.callbacks.BestModelCheckpoint),
        ("ValueError: LearningRateWarmupCallback needs initial_lr", lambda: warm_up(none)),
        ("ValueError: the model of a KerasState must be built", lambda: kept(keras.Sequential([layers.Dense(2)]))),
        ("ValueError: the model of a KerasState must be compiled", lambda: kept(plain)),
        ("NotImplementedError: TensorFlowState makes ranks that join wait", hvd.elastic.TensorFlowState),
    ]
    found = [(expected, message(use)) for expected, use in uses]
    assert [(expected, each) for expected, each in found if not each.startswith(expected)] == []
