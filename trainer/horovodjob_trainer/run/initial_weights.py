"""Initial weights from a file, and frozen layers."""

import fnmatch
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from horovodjob_trainer.cli.settings import ALL_BUT_LAST
from horovodjob_trainer.errors import ModelError


def load_initial_weights(model: Any, path: Path) -> str:
    """Load the weights in the file into the built model. Returns a sentence about the result.

    The last layer can have another shape than in the file, and then keeps its random weights. Raises ModelError.
    """
    if not path.is_file():
        raise ModelError(f"--init-from: {path} does not exist")
    initial = [np.array(weight.value) for weight in model.weights]
    for weight in model.weights:
        if "float" in weight.dtype:  # weights that Keras skips stay NaN
            weight.assign(np.full(weight.shape, np.nan))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the skipped weights
            model.load_weights(path, skip_mismatch=True)
    except Exception as error:  # Keras, h5py and zipfile raise many types
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"--init-from: {path} does not contain weights for this model: {reason}") from error
    skipped = {_layer(model, weight) for weight in model.weights if _is_missing(weight)}
    last = _layer(model, model.weights[-1])
    if skipped - {last}:
        raise ModelError(
            f"--init-from: {path} has no weights of the right shape for {', '.join(sorted(skipped - {last}))}; only "
            f"the last layer, {last}, can differ"
        )
    for weight, value in zip(model.weights, initial, strict=True):
        if _layer(model, weight) in skipped:
            weight.assign(value)
    exception = f", except {last}, which has another shape and keeps its random weights" if skipped else ""
    return f"Initial weights from {path}{exception}"


def freeze_layers(model: Any, patterns: Sequence[str]) -> str:
    """Exclude layers of the built model from training. Returns a sentence about the result. Raises ModelError."""
    layers = {layer.name: layer for layer in model._flatten_layers(include_self=False) if layer.weights}
    frozen: set[str] = set()
    for pattern in patterns:
        names = set(fnmatch.filter(layers, pattern))
        if pattern == ALL_BUT_LAST:
            last = {id(weight) for weight in model.layers[-1].weights} or {id(model.weights[-1])}
            names = {name for name, layer in layers.items() if last.isdisjoint(map(id, layer.weights))}
        if not names:
            raise ModelError(f"--freeze: no layer matches {pattern}; the layers are {', '.join(layers)}")
        frozen |= names
    for name in frozen:
        layers[name].trainable = False
    if not model.trainable_variables:
        raise ModelError(f"--freeze {','.join(patterns)} leaves no layer to train")
    return f"Frozen layers: {', '.join(name for name in layers if name in frozen)}"


def _layer(model: Any, weight: Any) -> str:
    """The path of the layer of a weight."""
    return str(weight.path).removeprefix(f"{model.name}/").rpartition("/")[0]


def _is_missing(weight: Any) -> bool:
    return "float" in weight.dtype and bool(np.isnan(np.asarray(weight.value, np.float32)).all())
