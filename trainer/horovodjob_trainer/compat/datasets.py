"""cifar10.load_data() for the data set that the options select."""

from typing import Any, cast

import numpy as np

from horovodjob_trainer import data
from horovodjob_trainer.compat import keras2
from horovodjob_trainer.data.arrays import Arrays


def install(request: data.Request) -> None:
    """Replace the function of Keras, which accepts only the official archive and deletes any other."""
    from keras import backend
    from keras.datasets import cifar10

    def load_data() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        """Images of shape (n, 32, 32, 3), or (n, 3, 32, 32) with channels_first, and labels of shape (n, 1)."""
        dataset = data.load_dataset(request)
        channels_first = backend.image_data_format() == "channels_first"

        def keras_arrays(source: data.Source) -> tuple[Any, Any]:
            arrays = cast(Arrays, source)
            images = arrays.examples.transpose(0, 3, 1, 2) if channels_first else arrays.examples
            return images, arrays.labels.astype(np.uint8).reshape(-1, 1)

        return keras_arrays(dataset.train), keras_arrays(dataset.test)

    keras2.replace(cifar10.load_data, load_data)
