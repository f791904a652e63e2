"""Loading a saved model to train on."""

from collections.abc import Sequence
from typing import Any

import keras

from horovodjob_trainer.hvd.compression import Compression
from horovodjob_trainer.hvd.optimizer import DistributedOptimizer


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model whose optimizer, with the slots that the file has, is a distributed one.

    `custom_optimizers` are the classes of optimizers that Keras does not know. Raises ValueError for a file without
    an optimizer and for `legacy_opts`: Keras 3 has no such optimizers.
    """
    if legacy_opts:
        raise ValueError("legacy_opts=True needs Keras 2; Keras 3 has no legacy optimizers")
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    model = keras.saving.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if getattr(model, "optimizer", None) is None:
        raise ValueError(f"{filepath} was saved without an optimizer: load it with Keras and compile it")
    DistributedOptimizer(model.optimizer, compression=compression)
    model.jit_compile = False  # XLA, which the file may ask for, cannot compile the exchange
    return model
