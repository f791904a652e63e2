"""cifar10.load_data() that reads what the options name."""

from typing import Any, cast

import numpy as np

from horovodjob_trainer import data
from horovodjob_trainer.compat import keras2
from horovodjob_trainer.data.arrays import Arrays


def install(request: data.Request) -> None:
    """Replaces the reader of Keras, which takes the one official archive only and deletes any other it finds."""
    from keras import backend
    from keras.datasets import cifar10

    def load_data() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Images of shape (n, 32, 32, 3), or (n, 3, 32, 32) if Keras is told so, and labels of shape (n, 1)."""
        found = data.opened(request)
        channels_first = backend.image_data_format() == "channels_first"

        def part(source: data.Source) -> tuple[Any, Any]:
            arrays = cast(Arrays, source)
            images = arrays.examples.transpose(0, 3, 1, 2) if channels_first else arrays.examples
            return images, arrays.labels.astype(np.uint8).reshape(-1, 1)

        return part(found.train), part(found.test)

    keras2.replace(cifar10.load_data, load_data)
