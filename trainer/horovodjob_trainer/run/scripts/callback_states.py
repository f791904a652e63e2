"""The states of the callbacks of `fit`, which a run keeps in its checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

JsonState = dict[str, Any]
ARRAY = "__array__"
# What Keras forgets when a training begins, or at the end of the process.
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("best", "wait", "best_epoch", "stopped_epoch", "best_weights"),
    keras.callbacks.ModelCheckpoint: ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.OrbaxCheckpoint: ("best", "_batches_seen_since_last_saving", "_last_batch_seen"),
    keras.callbacks.ReduceLROnPlateau: ("best", "wait", "cooldown_counter"),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
}
OWN_METHODS = ("get_run_state", "set_run_state")


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Raise ValueError for a callback that cannot be one of a run."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise ValueError("fit with RunCallback does not support BackupAndRestore: the run itself continues; remove "
                             "BackupAndRestore")  # fmt: skip
        has = [hasattr(callback, name) for name in OWN_METHODS]
        if any(has) and not all(has):
            raise ValueError(f"the callback {type(callback).__name__} needs both {' and '.join(OWN_METHODS)}")


def continue_files(callbacks: Sequence[Any]) -> None:
    """Let callbacks append to files that they would begin again. Call it before the training begins."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger):
            callback.append = True


def callback_states(callbacks: Sequence[Any]) -> tuple[JsonState, dict[str, Any]]:
    """The states as JSON values, and the arrays in them. Raises TypeError for other values."""
    arrays: dict[str, Any] = {}
    return {key: _encoded(_state(each), key, arrays) for key, each in _keyed(callbacks)}, arrays


def restore_callbacks(callbacks: Sequence[Any], states: JsonState, arrays: Mapping[str, Any]) -> None:
    """Give callbacks the states of those with the same class and number. Call it after the training has begun."""
    for key, callback in _keyed(callbacks):
        if key not in states:
            continue
        if hasattr(callback, OWN_METHODS[1]):
            callback.set_run_state(_decoded(states[key], arrays))
        else:
            for name, value in states[key].items():
                setattr(callback, name, _decoded(value, arrays))


def _keyed(callbacks: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The callbacks with a state, by their class and its number in the list."""
    counts: dict[str, int] = {}
    for callback in callbacks:
        if hasattr(callback, OWN_METHODS[0]) or any(isinstance(callback, kind) for kind in ATTRIBUTES):
            name = type(callback).__name__
            counts[name] = counts.get(name, 0) + 1
            yield f"{name}-{counts[name]}", callback


def _state(callback: Any) -> Any:
    if hasattr(callback, OWN_METHODS[0]):
        return callback.get_run_state()
    names = [name for kind, names in ATTRIBUTES.items() if isinstance(callback, kind) for name in names]
    return {name: getattr(callback, name) for name in names if hasattr(callback, name)}


def _encoded(value: Any, path: str, arrays: dict[str, Any]) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case Mapping():
            return {str(name): _encoded(each, f"{path}/{name}", arrays) for name, each in value.items()}
        case list() | tuple():
            return [_encoded(each, f"{path}/{number}", arrays) for number, each in enumerate(value)]
    if not (isinstance(value, np.ndarray) or keras.ops.is_tensor(value) or isinstance(value, keras.Variable)):
        raise TypeError(f"the state of the callback {path} contains a {type(value).__name__}; use numbers, strings, "
                        "lists, dicts and arrays")  # fmt: skip
    array = np.array(value)
    if array.dtype.kind not in "biufc":  # HDF5 has no bfloat16
        array = array.astype(np.float32)
    if not array.ndim:
        return array.item()
    arrays[path] = array
    return {ARRAY: path}


def _decoded(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if set(value) == {ARRAY}:
            return arrays[value[ARRAY]]
        return {name: _decoded(each, arrays) for name, each in value.items()}
    return [_decoded(each, arrays) for each in value] if isinstance(value, list) else value
