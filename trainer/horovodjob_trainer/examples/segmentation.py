"""A small U-Net that finds the pixels of discs and squares in noisy images, which are made by their number.

python -m horovodjob_trainer --data horovodjob_trainer.examples.segmentation:shapes \\
  --model horovodjob_trainer.examples.segmentation:unet --task horovodjob_trainer.examples.segmentation:pixel_classes
"""

from typing import Any

import keras
import tensorflow as tf
from keras import layers

SIDE = 32  # pixels
CLASSES = 3  # background, disc, square
EXAMPLES = 2048


def shapes() -> Any:
    """Images with a disc and a square, and the class of each pixel."""
    return tf.data.Dataset.range(EXAMPLES).map(_image)


def unet(shape: tuple[int, ...], filters: int = 8) -> Any:
    """A U-Net with two levels that returns the logits of the classes of each pixel."""
    inputs = keras.Input(shape)
    top = _convolutions(inputs, filters)
    middle = _convolutions(layers.MaxPooling2D()(top), 2 * filters)
    bottom = _convolutions(layers.MaxPooling2D()(middle), 4 * filters)
    x = _convolutions(layers.Concatenate()([layers.UpSampling2D()(bottom), middle]), 2 * filters)
    x = _convolutions(layers.Concatenate()([layers.UpSampling2D()(x), top]), filters)
    return keras.Model(inputs, layers.Conv2D(CLASSES, 1, dtype="float32")(x), name="unet")


def pixel_classes() -> tuple[Any, list[Any]]:
    """The cross-entropy of each pixel, and the intersection over union of the classes."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True), [
        keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="mean_io_u")
    ]


def _image(number: Any) -> tuple[Any, Any]:
    """The image with this number and its classes. Stateless operations make the same image in each epoch."""
    seed = tf.stack([number, 0])
    numbers = tf.random.stateless_uniform((6,), seed, 0.2, 0.8)
    y, x = tf.meshgrid(tf.linspace(0.0, 1.0, SIDE), tf.linspace(0.0, 1.0, SIDE), indexing="ij")
    disc = (y - numbers[0]) ** 2 + (x - numbers[1]) ** 2 < (numbers[2] / 4) ** 2
    square = tf.maximum(tf.abs(y - numbers[3]), tf.abs(x - numbers[4])) < numbers[5] / 5
    classes = tf.where(square, 2, tf.where(disc, 1, 0))
    brightness = tf.gather([0.2, 0.5, 0.8], classes) + tf.random.stateless_normal((SIDE, SIDE), seed, stddev=0.15)
    return brightness[..., tf.newaxis], classes


def _convolutions(x: Any, filters: int) -> Any:
    for _ in range(2):
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)))
    return x
