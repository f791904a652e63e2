"""A callback that changes the call of `fit`, such as its data and its first epoch."""

from contextlib import AbstractContextManager
from typing import Any

import keras


class FitCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """`fit` of a Keras model enters the context `fit` of this callback before it begins."""

    def fit(self, arguments: dict[str, Any]) -> AbstractContextManager[None]:
        """A context around the call of `fit`. It can change the arguments, which have their names, `self` included."""
        raise NotImplementedError
