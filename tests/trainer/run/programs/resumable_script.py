"""A script whose run continues after an interruption, with fit or a loop of its own."""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd
from trainer.support.interruptions import hold, limit_files, reach, watch_files

EXAMPLES, EPOCHS = 90, 3
directory, form = Path(sys.argv[1]), sys.argv[2]
hvd.init()
watch_files()
keras.utils.set_random_seed(3)
random = np.random.default_rng(0)
numbers = np.arange(EXAMPLES, dtype=np.float32)
features = np.column_stack([numbers, random.random((EXAMPLES, 3), np.float32)])
targets = random.random((EXAMPLES, 1), np.float32)


def take(values: Any, step: Any) -> Any:
    """Record the numbers of the examples of a step."""
    with (directory / f"taken-{hvd.rank()}").open("a") as file:
        file.write("".join(f"{step} {number:.0f}\n" for number in values[:, 0]))
    reach("step")
    hold(directory)
    if step == 6:
        limit_files()
    return values


def validate(values: Any) -> Any:
    reach("validation")
    return values


class Taking(keras.layers.Layer):  # type: ignore[misc]
    """Removes the number of each example."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        function, arguments = (take, [inputs, optimizer.iterations.value]) if training else (validate, [inputs])
        outputs = tf.numpy_function(function, arguments, tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs[:, 1:]


class Batches(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        with (directory / f"batches-{hvd.rank()}").open("a") as file:
            file.write(f"{batch}\n")


layers = keras.layers
model = keras.Sequential(
    [keras.Input((4,)), Taking(), layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dropout(0.3),
     layers.Dense(1)]
)  # fmt: skip
optimizer = keras.optimizers.Adam(0.01)
options = {"every_steps": 2, "failure_seconds": float(os.environ.get("FAILURE_SECONDS", 1800))}
examples = hvd.Examples((features, targets), 5)
dataset = tf.data.Dataset.from_tensor_slices((features, targets)).shard(hvd.size(), hvd.rank())
if form != "loop":
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    model.fit(
        dataset.shuffle(40).batch(5).prefetch(2) if form == "fit" else examples,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[
            hvd.RunCallback(directory, **options),
            Batches(),
            hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2),
        ],
        validation_data=(features, targets),
    )
else:
    optimizer.build(model.trainable_variables)
    run = hvd.Run(directory, model, optimizer, **options)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(inputs: Any, outputs: Any) -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - outputs) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    for inputs, outputs in run.steps(examples, epochs=EPOCHS):
        run.report(loss=step(inputs, outputs))
        if run.ends_epoch:
            model(features)
values = b"".join(np.array(each).tobytes() for each in [*model.weights, *optimizer.variables])
print(f"RANK {hvd.rank()} RESULT {hashlib.sha256(values).hexdigest()}", flush=True)
