"""A model whose training step uses several optimizers."""

import re
from pathlib import Path
from typing import Any

from trainer.support.arrays import assert_same_bits

OWN = """
import os
import keras
import tensorflow as tf

class TwoParts(keras.Model):
    '''Trains its last layer with a second optimizer.'''

    def train_step(self, data):
        examples, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(examples, labels, self(examples, training=True))
        weights = self.trainable_variables
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply(gradients[:2], weights[:2])
        if "ALONE" in os.environ:  # as an optimizer that nobody has wrapped
            for weight, gradient in zip(weights[2:], gradients[2:]):
                weight.assign_sub(0.1 * gradient)
        else:
            self.others["last"].apply(gradients[2:], weights[2:])
        if "STOP_AT" in os.environ:
            stop = self.optimizer.iterations >= int(os.environ["STOP_AT"])
            loss = tf.where(stop, float("nan"), loss)
        return {"loss": loss}

def build(shape, classes):
    inputs = keras.Input(shape)
    hidden = keras.layers.Dense(8, "relu")(keras.layers.Flatten()(inputs))
    model = TwoParts(inputs, keras.layers.Dense(classes, "softmax", name="last")(hidden))
    model.others = {"last": keras.optimizers.Adam(0.002)}
    model.unused = keras.optimizers.SGD(7.0)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy")
    return model
"""
FLAGS = ("--epochs", 2, "--batch-size", 128, "--deterministic", "--learning-rate-scaling", "linear",
         "--schedule", "constant", "--no-augment")  # fmt: skip


def test_all_optimizers_that_a_step_uses_are_averaged_scaled_and_resumed_bit_for_bit(
    train_digits: Any, tmp_path: Path
) -> None:
    whole = train_digits(2, OWN, *FLAGS, "--check-sync-every", 1)
    assert whole.code == 0, whole.stderr
    assert re.findall(r"^Learning rate: (\S+) of one rank times 2 ", whole.stdout, re.MULTILINE) == ["0.05", "0.002"]
    (tmp_path / "out").rename(tmp_path / "whole")

    # The step after which the run ends differs, so that its last checkpoint is in the middle of the second epoch.
    first = train_digits(2, OWN, *FLAGS, "--checkpoint-steps", 8, STOP_AT="9")
    assert first.code != 0
    assert (tmp_path / "out/checkpoint-1-2.h5").exists()
    second = train_digits(2, OWN, *FLAGS, HOROVODJOB_ATTEMPT="2")
    assert second.code == 0, second.stderr
    assert "Attempt 2: resuming after epoch 1 and 2 steps" in second.stdout
    assert_same_bits(tmp_path / "out/checkpoint-2.h5", tmp_path / "whole/checkpoint-2.h5")


def test_a_step_that_does_not_average_its_gradients_ends_after_the_first_step(train_digits: Any) -> None:
    ended = train_digits(2, OWN, "--epochs", 1, "--no-augment", ALONE="1")
    assert ended.code == 4
    (sentence,) = ended.errors
    assert re.search(r"after step 1 the weights of rank 1 on \S+ differ", sentence)
