"""A training with LARS, averages of the weights, RandAugment, mixup and CutMix resumes with the same bits."""

from pathlib import Path
from typing import Any

from trainer.support.arrays import assert_same_bits

MODEL = "saved_models/keras_digits_trained_model"
FLAGS = (
    "--optimizer", "lars", "--learning-rate", 5, "--weight-decay", 1e-4, "--schedule", "cosine", "--warmup-epochs", 1,
    "--label-smoothing", 0.1, "--ema", 0.9, "--rand-augment", 0.1, "--mixup", 0.2, "--cutmix", 1, "--deterministic",
    "--batch-size", 240, "--epochs", 2, "--checkpoint-steps", 1,
)  # fmt: skip
OWN = """
import os, signal
import keras
import tensorflow as tf

steps = 0


def count(inputs):
    global steps
    steps += 1
    if steps == int(os.environ.get("KILL_STEP", 0)):
        os.kill(os.getpid(), signal.SIGKILL)
    return inputs


class Killed(keras.layers.Layer):
    def call(self, inputs, training=False):
        if not training:
            return inputs
        outputs = tf.numpy_function(count, [inputs], tf.float32)
        outputs.set_shape(inputs.shape)
        return outputs


def build(shape, classes):
    layers = [Killed(), keras.layers.Conv2D(4, 3, strides=4), keras.layers.BatchNormalization(), keras.layers.Flatten()]
    return keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(classes, "softmax")])
"""


def test_a_killed_training_with_the_recipe_of_today_resumes_with_the_same_bits(
    train_digits: Any, tmp_path: Path
) -> None:
    whole = train_digits(1, OWN, *FLAGS, "--dir", tmp_path / "whole")
    assert whole.code == 0, whole.stderr
    assert train_digits(1, OWN, *FLAGS, KILL_STEP="9").code != 0
    resumed = train_digits(1, OWN, *FLAGS, HOROVODJOB_ATTEMPT="2")
    assert resumed.code == 0, resumed.stderr
    assert "Attempt 2: resuming after epoch 1" in resumed.stdout
    assert_same_bits(tmp_path / "whole" / f"{MODEL}.h5", tmp_path / "out" / f"{MODEL}.h5")
