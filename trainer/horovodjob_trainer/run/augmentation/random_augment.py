"""RandAugment of Cubuk et al. 2019 (arXiv:1909.13719) with the operations of Keras."""

from functools import partial
from typing import Any

import keras
import tensorflow as tf

from horovodjob_trainer.run.augmentation.position_seeds import PositionSeeds

OPERATIONS_PER_IMAGE = 2
PURPOSES = range(10, 10 + 2 * OPERATIONS_PER_IMAGE)


class RandomAugment(keras.layers.RandAugment):  # type: ignore[misc]
    """Changes uint8 images with random operations, which are different ones for each image.

    Keras itself draws the operations once for a batch, and computes all of them. Here, the change of an image depends
    only on the seed and its position, and only the drawn operations are computed.
    """

    def __init__(self, strength: float, shape: tuple[int, ...], seed: int) -> None:
        # The layers have a seed of their own only because they draw one from the random numbers of Python otherwise.
        super().__init__((0, 255), OPERATIONS_PER_IMAGE, strength, seed=0, dtype="float32")
        self.build((1, *shape))
        self.run_seed, self.image_shape = seed, shape

    def augmented(self, position: Any, images: Any, labels: Any) -> tuple[Any, Any, Any]:
        """The element with changed images, the first of which has this position."""
        positions = position + tf.range(tf.shape(images, tf.int64)[0])
        signature = tf.TensorSpec(self.image_shape, tf.uint8)
        return position, tf.map_fn(self._augmented_image, (images, positions), fn_output_signature=signature), labels

    def _augmented_image(self, element: tuple[Any, Any]) -> Any:
        image, position = element
        images = tf.cast(image[tf.newaxis], tf.float32)
        for choice, change in zip(PURPOSES[::2], PURPOSES[1::2], strict=True):
            seeds = PositionSeeds(self.run_seed, position, choice)
            operation = keras.random.randint((), 0, len(self._AUGMENT_LAYERS), seed=seeds)
            branches = [partial(self._changed, name, images, position, change) for name in self._AUGMENT_LAYERS]
            images = tf.switch_case(operation, branches)
        return tf.cast(tf.clip_by_value(tf.round(images[0]), 0, 255), tf.uint8)

    def _changed(self, name: str, images: Any, position: Any, purpose: int) -> Any:
        layer, seeds = getattr(self, name), PositionSeeds(self.run_seed, position, purpose)
        change = layer.get_random_transformation(images, training=True, seed=seeds)
        return tf.ensure_shape(layer.transform_images(images, change, training=True), images.shape)
