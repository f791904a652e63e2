"""Loads saved models for further training."""

from collections.abc import Sequence
from typing import Any

import keras

from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.optimizer import DistributedOptimizer, is_distributed


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model with a distributed optimizer that has the slots in the file.

    `custom_optimizers` are optimizer classes that are not part of Keras. Raises ValueError for a file without an
    optimizer and for `legacy_opts`, because Keras 3 has no legacy optimizers.
    """
    if legacy_opts:
        raise ValueError("legacy_opts=True needs Keras 2; Keras 3 has no legacy optimizers")
    optimizers = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    model = keras.saving.load_model(filepath, custom_objects={**optimizers, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"{filepath} was saved without an optimizer: load it with Keras and compile it")
    if not is_distributed(model.optimizer):  # custom_objects can distribute it
        DistributedOptimizer(model.optimizer, compression=compression)
    model.jit_compile = False  # the file may enable XLA, which cannot compile the allreduce
    return model
