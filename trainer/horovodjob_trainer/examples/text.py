"""A small transformer that predicts the next character of the Python documentation, which is part of Python.

python -m horovodjob_trainer --data horovodjob_trainer.examples.text:passages \\
  --model horovodjob_trainer.examples.text:transformer --task horovodjob_trainer.examples.text:next_character
"""

from pydoc_data.topics import topics
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

LENGTH = 64  # characters in an example
CHARACTERS = 128  # of ASCII; others become a question mark


def passages() -> Any:
    """Passages of the text, each with the passage one character further on."""
    text = "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    characters = np.frombuffer(text, np.uint8).astype(np.int32)
    count = (len(characters) - 1) // LENGTH
    examples, labels = characters[: count * LENGTH], characters[1 : count * LENGTH + 1]
    return tf.data.Dataset.from_tensor_slices((examples.reshape(count, LENGTH), labels.reshape(count, LENGTH)))


def transformer(shape: tuple[int, ...], width: int = 64, blocks: int = 2, heads: int = 4) -> Any:
    """A decoder that returns logits of the next character at each position."""
    inputs = keras.Input(shape, dtype="int32")
    positions = layers.Embedding(shape[0], width)(tf.range(shape[0]))
    x = layers.Embedding(CHARACTERS, width)(inputs) + positions
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, "gelu")(y))
    logits = layers.Dense(CHARACTERS, dtype="float32")(layers.LayerNormalization()(x))
    return keras.Model(inputs, logits, name="transformer")


def next_character() -> tuple[Any, list[Any]]:
    """The cross-entropy of each character, and the share of characters that are predicted."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True), [
        keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    ]
