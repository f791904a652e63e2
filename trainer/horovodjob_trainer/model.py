"""The networks that can be trained."""

from typing import Any

import keras
from keras import layers

from horovodjob_trainer.data import CHANNELS, CLASSES, SIDE


def tutorial_cnn(*, dropout: bool = True) -> Any:
    """The small CIFAR-10 network of Keras' classic example: 1.25 million weights, about 75 % in 25 epochs."""

    def dropped(rate: float) -> list[Any]:
        return [layers.Dropout(rate)] if dropout else []

    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, CHANNELS)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            *dropped(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            *dropped(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            *dropped(0.5),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
