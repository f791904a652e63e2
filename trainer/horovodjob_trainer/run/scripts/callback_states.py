"""The states of the callbacks of `fit`, which a run keeps in its checkpoints."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import keras
import numpy as np

JsonState = dict[str, Any]
ARRAY = "__array__"
_BATCHES = ("_batches_seen_since_last_saving", "_last_batch_seen")
# What Keras forgets when a training begins, or at the end of the process.
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: (),
    keras.callbacks.ModelCheckpoint: _BATCHES,
    keras.callbacks.OrbaxCheckpoint: _BATCHES,
    keras.callbacks.ReduceLROnPlateau: ("cooldown_counter",),
    keras.callbacks.TensorBoard: ("_global_train_batch", "_global_test_batch"),
    keras.callbacks.History: ("epoch",),
    keras.callbacks.CSVLogger: (),
}
# The same of the metric that a callback monitors.
OF_METRIC: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: ("best", "wait", "best_epoch", "stopped_epoch", "best_weights"),
    keras.callbacks.ModelCheckpoint: ("best",),
    keras.callbacks.OrbaxCheckpoint: ("best",),
    keras.callbacks.ReduceLROnPlateau: ("best", "wait"),
}
METRIC = "metric"  # the state of the metric: its name and direction, and the attributes
FILE_BYTES = "bytes"  # the length of a file to which a callback appends
THRESHOLD = "_initial_value_threshold"  # where a callback keeps its argument, which Keras overwrites
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


def restore_callbacks(
    callbacks: Sequence[Any], states: JsonState, arrays: Mapping[str, Any], log: Callable[[str], None]
) -> None:
    """Give callbacks the states of those with the same class and number. Call it after the training has begun."""
    for key, callback in _keyed(callbacks):
        if _has_threshold(callback) and not hasattr(callback, THRESHOLD):
            setattr(callback, THRESHOLD, callback.best)
        if key not in states:
            continue
        state = _decoded(states[key], arrays)
        if hasattr(callback, OWN_METHODS[1]):
            callback.set_run_state(state)
            continue
        metric, history = state.pop(METRIC, None), state.pop("history", {})
        if (length := state.pop(FILE_BYTES, None)) is not None:
            _cut_file(callback, length)
        for name, value in state.items():
            setattr(callback, name, value)
        for name, values in history.items():
            callback.history[name] = values.tolist() if values.ndim == 1 else list(values)
        if metric is not None:
            _restore_metric(callback, metric, log)


def _cut_file(callback: Any, length: int) -> None:
    """Remove the rows of epochs that the run repeats: it was killed after them and before their checkpoint."""
    if length < callback.csv_file.tell():
        callback.csv_file.truncate(length)
        callback.append_header = not length


def _restore_metric(callback: Any, state: JsonState, log: Callable[[str], None]) -> None:
    """Restore what the run knows of the metric of a callback, unless the script has another one now."""
    if callback.monitor_op is None:
        with suppress(ValueError):  # Keras raises it at the end of the epoch
            callback._set_monitor_op()
    own, of_run = [callback.monitor, _direction(callback)], [state.pop("monitor"), state.pop("direction")]
    threshold_of_run = state.pop("threshold")
    if state["best"] is None:
        return
    problem = None
    if own != of_run and None not in (own[1], of_run[1]):
        problem = f"monitors {own[0]} ({own[1]}) now and monitored {of_run[0]} ({of_run[1]}) before"
    elif getattr(callback, "restore_best_weights", False) and state["best_weights"] is None:
        problem = "restores the best weights now, and the run has not kept them"
    if problem is not None:
        log(f"{type(callback).__name__} {problem}: its best value begins again")
        return
    for name, value in state.items():
        setattr(callback, name, value)
    achieved = None if callback.best == threshold_of_run else callback.best
    threshold, is_better = getattr(callback, THRESHOLD, None), callback.monitor_op
    if achieved is None or (threshold is not None and is_better and is_better(threshold, achieved)):
        achieved = threshold
    callback.best = achieved


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
    state = _attributes(callback, ATTRIBUTES)
    if isinstance(callback, keras.callbacks.History):
        columns = {name: np.asarray(values) for name, values in callback.history.items() if _is_array(values)}
        state["history"] = columns
    if isinstance(callback, keras.callbacks.CSVLogger) and not callback.csv_file.closed:
        state[FILE_BYTES] = callback.csv_file.tell()
    if metric := _attributes(callback, OF_METRIC):
        named = {"monitor": callback.monitor, "direction": _direction(callback)}
        state[METRIC] = {**named, "threshold": getattr(callback, THRESHOLD, None), **metric}
    return state


def _attributes(callback: Any, names: Mapping[type, tuple[str, ...]]) -> JsonState:
    known = [name for kind, each in names.items() if isinstance(callback, kind) for name in each]
    return {name: getattr(callback, name) for name in known if hasattr(callback, name)}


def _has_threshold(callback: Any) -> bool:
    return isinstance(callback, (keras.callbacks.ModelCheckpoint, keras.callbacks.OrbaxCheckpoint))


def _direction(callback: Any) -> str | None:
    """Which value of the metric is the best. None before Keras knows the metric."""
    return None if callback.monitor_op is None else "min" if callback.monitor_op == keras.ops.less else "max"


def _is_array(values: Sequence[Any]) -> bool:
    """Whether the values of all epochs are numbers, or arrays of one shape."""
    with suppress(ValueError, TypeError):
        return np.asarray(values).dtype.kind in "biuf"
    return False


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
