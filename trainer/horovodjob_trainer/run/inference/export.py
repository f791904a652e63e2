"""The export of a trained model to the formats of model servers."""

import importlib.util
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from horovodjob_trainer.atomic_file import PARTIAL_PREFIX, atomic_write
from horovodjob_trainer.errors import ModelError, OutputError, UsageError

KERAS_FORMATS = {"saved-model": "tf_saved_model", "onnx": "onnx"}


def export_model(model: Any, path: Path, file_format: str) -> None:
    """Write the model to a new directory (saved-model) or to a file (onnx). The name of a single input is `input`.

    Raises UsageError, ModelError and OutputError with one sentence.
    """
    if file_format == "onnx" and importlib.util.find_spec("tf2onnx") is None:
        raise UsageError("--format onnx needs the package tf2onnx; install it with pip install tf2onnx")
    inputs = getattr(model, "inputs", None) or []  # a subclass of Model has none
    signature = [tf.TensorSpec(inputs[0].shape, inputs[0].dtype, name="input")] if len(inputs) == 1 else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            atomic_write(path) if file_format == "onnx" else _new_directory(path) as partial,
            warnings.catch_warnings(action="ignore"),  # of tf2onnx about the version of numpy
        ):
            model.export(partial, format=KERAS_FORMATS[file_format], verbose=False, input_signature=signature)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}; use another --output") from error
    except Exception as error:  # Keras and tf2onnx raise many types
        reason = " ".join(str(error).split())[:300]
        raise ModelError(
            f"the model cannot be exported as {file_format}: {reason}; in Python, call the model on an example, then "
            "model.export()"
        ) from error


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """A temporary path that becomes the directory at the end: model servers load a new directory at once."""
    path = target.with_name(f"{PARTIAL_PREFIX}{target.name}")
    shutil.rmtree(path, ignore_errors=True)
    try:
        yield path
        path.rename(target)  # only onto an empty directory
    finally:
        shutil.rmtree(path, ignore_errors=True)
