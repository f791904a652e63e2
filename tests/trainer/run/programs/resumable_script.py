"""A script whose run continues after an interruption: fit or a loop of its own, with a signal in one of its steps."""

import hashlib
import os
import signal
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import horovodjob_trainer.hvd as hvd

EXAMPLES, EPOCHS = 90, 3
directory, form = sys.argv[1:3]
signal_step = int(os.environ.get("SIGNAL_STEP", 0))
hvd.init()
keras.utils.set_random_seed(3)
random = np.random.default_rng(0)
numbers = np.arange(EXAMPLES, dtype=np.float32)
features = np.column_stack([numbers, random.random((EXAMPLES, 3), np.float32)])
targets = random.random((EXAMPLES, 1), np.float32)
taken: list[int] = []
steps: list[int] = []
state = {"step": 0}


def take(values: Any) -> Any:
    state["step"] += 1
    if state["step"] == signal_step and hvd.rank() == hvd.size() - 1:
        os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
    return values


class Taking(keras.layers.Layer):  # type: ignore[misc]
    """Removes the number of each example."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        outputs = tf.numpy_function(take, [inputs], tf.float32) if training else inputs
        outputs.set_shape(inputs.shape)
        return outputs[:, 1:]


class Batches(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        steps.append(batch)


layers = keras.layers
model = keras.Sequential(
    [keras.Input((4,)), Taking(), layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dropout(0.3),
     layers.Dense(1)]
)  # fmt: skip
optimizer = keras.optimizers.Adam(0.01)
if form == "fit":
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((features, targets)).shard(hvd.size(), hvd.rank())
    model.fit(
        dataset.shuffle(40).batch(5).prefetch(2),
        epochs=EPOCHS,
        verbose=0,
        callbacks=[
            hvd.RunCallback(directory, every_steps=2),
            Batches(),
            hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=2),
        ],
        validation_data=(features, targets),
    )
else:
    optimizer.build(model.trainable_variables)
    run = hvd.Run(directory, model, optimizer, every_steps=2)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def step(inputs: Any, outputs: Any) -> Any:
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_mean((model(inputs, training=True) - outputs) ** 2)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    ends = 0
    for inputs, outputs in run.steps(hvd.Examples((features, targets), 5), epochs=EPOCHS):
        with open(f"{directory}/taken-{hvd.rank()}", "a") as file:
            file.write("".join(f"{run.step} {number:.0f}\n" for number in np.asarray(inputs)[:, 0]))
        ends += run.ends_epoch
        run.report(loss=step(inputs, outputs))
    print(f"EPOCH ENDS {ends}")
values = b"".join(np.array(each).tobytes() for each in [*model.weights, *optimizer.variables])
print(f"RANK {hvd.rank()} STEPS {steps} RESULT {hashlib.sha256(values).hexdigest()}", flush=True)
