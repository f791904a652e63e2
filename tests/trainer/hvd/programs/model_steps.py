"""Trains kinds of models and optimizers that scripts use, on two ranks: `model_steps.py DIRECTORY`.

Each rank writes its results to `found-RANK.json`.
"""

import copy
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from horovodjob_trainer import hvd

layers, optimizers = keras.layers, keras.optimizers
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
WORDS = 9
WIDTH, LAYERS, STEPS = 512, 6, 3


def data(rows: int = 16) -> tuple[Any, Any]:
    random = np.random.default_rng(hvd.rank())
    return random.normal(size=(rows, 6)).astype(np.float32), random.integers(0, 3, rows)


def words(rows: int = 16) -> tuple[Any, Any]:
    random = np.random.default_rng(hvd.rank())
    return random.integers(0, WORDS, (rows, 4)), random.integers(0, 3, rows)


def flat(variables: Any) -> list[float]:
    return [float(value) for variable in variables for value in np.asarray(variable).astype(np.float64).ravel()]


def sgd(**arguments: Any) -> Any:
    return hvd.DistributedOptimizer(optimizers.SGD(0.1, momentum=0.9), **arguments)


def accumulating() -> Any:
    return hvd.DistributedOptimizer(optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2))


def state(model: Any) -> list[float]:
    return flat([*model.weights, *model.optimizer.variables])


def broadcast(**arguments: Any) -> Any:
    return hvd.callbacks.BroadcastGlobalVariablesCallback(0, **arguments)


class LateModel(keras.Model):  # type: ignore[misc]
    """Builds its layers in the first batch, in its own train_step."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = layers.Dense(5, "tanh"), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.last(self.hidden(inputs))

    def train_step(self, data: Any) -> Any:
        features, labels = data
        with tf.GradientTape() as tape:
            loss = LOSS(labels, self(features, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class OwnTape(LateModel):
    """Reduces the gradients with a tape, for a plain optimizer."""

    def train_step(self, data: Any) -> Any:
        features, labels = data
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = LOSS(labels, self(features, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def model_with_tape() -> list[float]:
    model = OwnTape()
    model.compile(optimizers.SGD(0.1, momentum=0.9))
    model.fit(*data(), batch_size=4, callbacks=[broadcast()], verbose=0)
    return state(model)


def late_model(is_ahead: bool) -> list[float]:
    """A model that the first batch builds, on rank 0 possibly earlier, as if it had loaded weights."""
    model = LateModel()
    if is_ahead and hvd.rank() == 0:
        model(np.zeros((1, 6), np.float32))
    model.compile(sgd())
    model.fit(*data(), batch_size=4, callbacks=[broadcast()], verbose=0)
    return state(model)


def sequential_without_input() -> list[float]:
    model = keras.Sequential([layers.Dense(5, "tanh"), layers.Dense(3)])
    model.compile(sgd(), LOSS)
    model.fit(*data(), batch_size=4, callbacks=[broadcast()], verbose=0)
    return state(model)


def single_layer() -> Any:
    return keras.Sequential([keras.Input((1,)), layers.Dense(1, use_bias=False, kernel_initializer="zeros")])


def with_model(optimizer: Any, copied: Callable[[Any], Any]) -> Any:
    model = single_layer()
    model.compile(optimizer, "mse")
    return copied(model).optimizer


def compiled_like(model: Any) -> Any:
    other = single_layer()
    other.compile_from_config(model.get_compile_config())
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
    "pickle of the model": lambda optimizer: with_model(optimizer, lambda model: pickle.loads(pickle.dumps(model))),
    "loss scaling": lambda optimizer: optimizers.deserialize(
        optimizers.serialize(optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0))
    ),
}


def copies() -> dict[str, float]:
    """The variable of this rank after a step with each copy, with a gradient of 1 on rank 0 and 3 on rank 1."""
    values = {}
    with warnings.catch_warnings(action="ignore"):  # Keras warns that a copy of a built optimizer has no slots
        for name, copied in COPIES.items():
            optimizer = copied(hvd.DistributedOptimizer(optimizers.SGD(1.0)))
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            variable = inner._trainable_variables[0] if inner.built else keras.Variable([[0.0]])
            optimizer.apply([tf.constant([[1.0 + 2 * hvd.rank()]])], [variable])
            values[name] = float(variable.numpy()[0, 0])
    return values


def variables_of_all_types() -> dict[str, Any]:
    """Variables that are broadcast, and the states of seed generators, which are not."""
    keras.utils.set_random_seed(50 + hvd.rank())
    model = keras.Sequential([keras.Input((6,)), layers.Dropout(0.5), layers.Dense(3)])
    types = ["uint32", "uint64", "int64", "bool", "float16", "bfloat16", "complex64", "float64"]
    others = [tf.Variable(tf.cast([1 + hvd.rank(), 1], dtype)) for dtype in types]
    shaped = tf.Variable(tf.cast([[hvd.rank()] * 3] * 2, tf.uint32))
    hvd.broadcast_variables([*model.variables, *others, shaped], root_rank=1)
    bits = hvd.broadcast(tf.cast([hvd.rank()], tf.uint32), root_rank=1).numpy()
    gathered = hvd.allgather(tf.cast([hvd.rank()], tf.bfloat16)).numpy()
    return {
        "seeds": flat([model.layers[0].seed_generator.state]),
        "weights": flat(model.weights),
        "types": [float(np.real(variable.numpy()[0])) for variable in others],
        "uint32": flat([shaped, bits]),
        "allgather": flat([gathered]),
    }


class Words(keras.Model):  # type: ignore[misc]
    """A model-parallel embedding: each rank has a table of a different size."""

    def __init__(self) -> None:
        super().__init__()
        self.table = layers.Embedding(WORDS + hvd.rank(), 4)
        self.pool, self.last = layers.GlobalAveragePooling1D(), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return self.last(self.pool(self.table(inputs)))


def local_layers() -> dict[str, Any]:
    model = Words()
    model(words()[0])
    optimizer = hvd.PartialDistributedOptimizer(optimizers.SGD(0.1, momentum=0.9), local_layers=model.table)
    model.compile(optimizer, LOSS)
    model.fit(*words(), batch_size=4, callbacks=[broadcast()], verbose=0)
    with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=model.table) as tape:
        loss = LOSS(words()[1], model(words()[0]))
    local, shared = tape.get_local_and_global_gradients(loss, model.trainable_variables)
    try:
        optimizer.from_config(optimizer.get_config())
    except ValueError as error:
        message = str(error)
    return {
        "table": list(model.table.embeddings.shape),
        "slot": list(optimizer.momentums[0].shape),
        "shared": flat(model.last.weights),
        "local sources": [source is model.table.embeddings for source, _ in local],
        "shared gradients": flat(gradient for _, gradient in shared),
        "copy": message,
    }


def bfloat16_words() -> list[float]:
    keras.config.set_dtype_policy("bfloat16")
    model = keras.Sequential([keras.Input((4,), dtype="int32"), layers.Embedding(WORDS, 4), layers.Flatten()])
    model.add(layers.Dense(3))
    model.compile(sgd(), LOSS)
    model.fit(*words(), batch_size=4, callbacks=[broadcast()], verbose=0)
    keras.config.set_dtype_policy("float32")
    return state(model)


class Seen(keras.layers.Layer):  # type: ignore[misc]
    """Counts its calls in an integer."""

    def build(self, shape: Any) -> None:
        self.steps = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any) -> Any:
        self.steps.assign_add(1 + hvd.rank())
        return inputs


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


def two_optimizers() -> list[float]:
    model = Pair()
    model.compile(accumulating())
    model.fit(*data(), batch_size=4, epochs=2, callbacks=[broadcast()], verbose=0)
    return [*state(model), *flat(model.other.variables)]


def frozen_layer_and_mixed_types() -> dict[str, Any]:
    """A frozen layer with different weights on each rank, and shared weights of three types in one group."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(6, trainable=False), layers.Dense(5, dtype="float64")])
    model.add(layers.Dense(4, dtype="bfloat16"))
    model.add(layers.Dense(3))
    model.layers[0].bias.assign(tf.fill([6], float(hvd.rank())))
    shared = model.layers[1:]
    optimizer = hvd.DistributedOptimizer(optimizers.SGD(0.1), groups=[[w for layer in shared for w in layer.weights]])
    model.compile(optimizer, LOSS)
    before = flat(weight for layer in shared for weight in layer.weights)
    for _ in range(3):
        model.train_on_batch(*data())
    after = flat(weight for layer in shared for weight in layer.weights)
    return {"frozen": flat(model.layers[0].weights[1:]), "trained": before != after, "shared": after}


def statistics_of_two_types() -> dict[str, Any]:
    """Moving statistics of float32 and bfloat16, and what is not averaged, of a model of the trainer."""
    from horovodjob_trainer.run.step import average_moving_statistics, build_step_function, moving_statistics

    model = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(), layers.Dense(4), Seen()])
    model.add(layers.BatchNormalization(dtype="bfloat16"))
    model.add(layers.BatchNormalization(trainable=False))
    model.add(layers.Dense(3, dtype="float16"))
    model.compile(sgd(), LOSS)
    model.optimizer.build(model.trainable_variables)
    hvd.broadcast_variables(model.weights)
    model.layers[-2].moving_mean.assign(tf.fill([4], float(hvd.rank())))
    step = build_step_function(model, [])
    batches = iter(tf.data.Dataset.from_tensors(data()).repeat())
    for _ in range(3):
        step(next(batches))
    averaged = moving_statistics(model)
    own = flat(averaged)
    average_moving_statistics(averaged)
    untouched = [model.layers[2].steps, model.layers[-2].moving_mean]
    return {
        "types": sorted({each.dtype for each in averaged}),
        "own": own,
        "averages": flat(averaged),
        "untouched": flat(untouched),
        "trained": flat(model.trainable_variables),
    }


def overlapping_exchange() -> None:
    """Steps of a model with a bucket for each of its layers, in the timeline of Horovod."""
    os.environ["HOROVOD_FUSION_THRESHOLD"] = str(4 * WIDTH * (WIDTH + 1))
    model = keras.Sequential([keras.Input((WIDTH,)), *(layers.Dense(WIDTH) for _ in range(LAYERS))])
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.01), name="overlap"), "mse")
    batch = np.ones((2 * WIDTH, WIDTH), np.float32)
    model.train_on_batch(batch, batch)  # traces the step
    hvd.start_timeline(str(Path(sys.argv[1], "timeline.json")))
    for _ in range(STEPS):
        model.train_on_batch(batch, batch)
    hvd.stop_timeline()
    del os.environ["HOROVOD_FUSION_THRESHOLD"]


def vector_metrics() -> dict[str, Any]:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, "softmax")])
    metrics = [keras.metrics.F1Score(name="f1"), "accuracy"]
    model.compile(sgd(), "categorical_crossentropy", metrics=metrics, run_eagerly=True)
    own: dict[str, Any] = {}
    recorder = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: own.update(logs))
    features, labels = data()
    callbacks = [broadcast(), recorder, hvd.callbacks.MetricAverageCallback()]
    history = model.fit(features, np.eye(3)[labels], callbacks=callbacks, verbose=0).history
    return {
        name: {"own": np.asarray(own[name]).tolist(), "average": np.asarray(history[name][0]).tolist()} for name in own
    }


def commits() -> int:
    class Counting(hvd.elastic.CommitStateCallback):
        count = 0

        def commit(self) -> None:
            self.count += 1

    model = single_layer()
    model.compile(sgd(), "mse", run_eagerly=True)
    callback = Counting(hvd.elastic.KerasState(model), batches_per_commit=2)
    model.fit(np.zeros((8, 1)), np.zeros((8, 1)), batch_size=2, callbacks=[callback], verbose=0)
    return callback.count


def warned(model: Any, optimizer: Any, callbacks: Any) -> list[str]:
    """The warnings of a training that begins with different weights on each rank."""
    for number, weight in enumerate(model.trainable_variables):
        weight.assign(weight + number + hvd.rank())
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.compile(optimizer, LOSS, run_eagerly=True)
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.set_model(model)
        model.fit(*data(8), batch_size=4, callbacks=callbacks, verbose=0)
    return [str(each.message) for each in caught if "Horovod" in str(each.message)]


def statistics_model(normalization: bool = False) -> Any:
    model = keras.Sequential([keras.Input((6,)), layers.BatchNormalization(), layers.Dense(3)])
    if normalization:
        adapted = layers.Normalization()
        adapted.adapt(data()[0])
        model = keras.Sequential([keras.Input((6,)), adapted, layers.Dense(3)])
    return model


def training_warnings() -> dict[str, list[str]]:
    def model() -> Any:
        return keras.Sequential([keras.Input((6,)), layers.Dense(3)])

    return {
        "none": warned(model(), sgd(), [broadcast()]),
        "callback list": warned(model(), sgd(), keras.callbacks.CallbackList([broadcast()], add_history=True, steps=2)),
        "own tape": warned(OwnTape(), optimizers.SGD(0.1), [broadcast()]),
        "averaged": warned(statistics_model(), sgd(), [broadcast(average_statistics=True)]),
        "plain optimizer": warned(model(), optimizers.SGD(0.1), [broadcast()]),
        "plain optimizer again": warned(model(), optimizers.SGD(0.1), [broadcast()]),
        "no broadcast": warned(model(), sgd(), []),
        "statistics": warned(statistics_model(), sgd(), [broadcast()]),
    }


def statistics() -> dict[str, Any]:
    """Statistics of each rank, averaged and broadcast."""
    features, labels = data()
    adapted = statistics_model(normalization=True)
    own = [np.mean(features, axis=0), np.var(features, axis=0)]
    found: dict[str, Any] = {"own mean": flat(own[:1]), "own variance": flat(own[1:])}
    adapted.compile(sgd(), LOSS, run_eagerly=True)
    adapted.fit(features, labels, callbacks=[broadcast(average_statistics=True)], verbose=0)
    found["averaged"] = [flat([adapted.layers[0].mean]), flat([adapted.layers[0].variance])]
    other = statistics_model(normalization=True)
    other.compile(sgd(), LOSS, run_eagerly=True)
    other.fit(features, labels, callbacks=[broadcast()], verbose=0)
    found["broadcast"] = [flat([other.layers[0].mean]), flat([other.layers[0].variance])]
    batch = statistics_model()
    batch.compile(sgd(), LOSS, run_eagerly=True)
    batch.fit(features, labels, batch_size=4, callbacks=[broadcast(average_statistics=True)], verbose=0)
    found["batch"] = flat(batch.layers[0].weights)
    return found


def join() -> int:
    return int(hvd.join())


def errors() -> dict[str, str]:
    """The messages about ranks that differ."""
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
    model.compile(sgd(), LOSS, run_eagerly=True)
    average = hvd.callbacks.MetricAverageCallback()
    validation = data() if hvd.rank() == 0 else None
    uses: dict[str, Callable[[], Any]] = {
        "steps": lambda: model.fit(*data(8 + 4 * hvd.rank()), batch_size=4, callbacks=[average], verbose=0),
        "metrics": lambda: model.fit(*data(), callbacks=[average], validation_data=validation, verbose=0),
        "join": hvd.join,
    }
    messages = {}
    for name, use in uses.items():
        try:
            use()
        except Exception as error:
            messages[name] = f"{type(error).__name__}: {error}"
    return messages


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # as in the trainer: with 1, gradients of biases are late
    hvd.init()
    keras.utils.set_random_seed(100 + hvd.rank())
    uses: list[Callable[[], Any]] = [
        join,  # before an allreduce
        copies,
        model_with_tape,
        sequential_without_input,
        variables_of_all_types,
        local_layers,
        bfloat16_words,
        two_optimizers,
        frozen_layer_and_mixed_types,
        statistics_of_two_types,
        overlapping_exchange,
        vector_metrics,
        commits,
        training_warnings,
        statistics,
        errors,
    ]
    found = {use.__name__: use() for use in uses}
    found["late_model"], found["model_ahead"] = late_model(is_ahead=False), late_model(is_ahead=True)
    Path(sys.argv[1], f"found-{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.allgather_object(None)


main()
