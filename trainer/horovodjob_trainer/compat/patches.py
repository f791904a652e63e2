"""Patches for a script: two mistakes in its training and its files, and atomic writes."""

import inspect
import linecache
import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import Any

from horovodjob_trainer.atomic_file import atomic_write
from horovodjob_trainer.compat import keras2
from horovodjob_trainer.compat.unused_callbacks import find_unused_callbacks
from horovodjob_trainer.launch import Launch
from horovodjob_trainer.reporting.progress_client import ProgressClient

Log = Callable[[str], None]


def limit_epochs(maximum: int) -> None:
    """End every training after this number of epochs."""

    def limit(arguments: dict[str, Any]) -> None:
        arguments["epochs"] = min(arguments.get("epochs", 1), maximum)

    _before_fit(limit)


def report_progress(launch: Launch) -> None:
    """Report the progress of every training to the operator, if there is one. The script's output stays as it is."""
    if not ProgressClient.is_configured(os.environ):
        return
    from keras.callbacks import CallbackList

    from horovodjob_trainer.callbacks import ProgressCallback

    class Progress(ProgressCallback):
        def __init__(self) -> None:
            super().__init__(log=lambda _: None)
            logs = os.environ.get("AZ_BATCHAI_STDOUTERR_DIR")
            self.directory = Path(logs) if logs else None

        def _rank_and_size(self) -> tuple[int, int]:
            return launch.rank, launch.size

    def add_callback(arguments: dict[str, Any]) -> None:
        callbacks = arguments.get("callbacks") or []
        if isinstance(callbacks, CallbackList):
            callbacks.append(Progress())
        else:
            callbacks = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
            arguments["callbacks"] = [*callbacks, Progress()]

    _before_fit(add_callback)


def pass_unused_callbacks(log: Log) -> None:
    """Pass callbacks that the script creates and never uses to a `fit` without callbacks."""
    from keras.callbacks import Callback

    logged: set[str] = set()

    def add_callbacks(arguments: dict[str, Any]) -> None:
        frame = _caller()
        if arguments.get("callbacks") or frame is None:
            return
        source = "".join(linecache.getlines(frame.f_code.co_filename))  # empty for code that exec got as a string
        variables = {**frame.f_globals, **frame.f_locals}
        unused = find_unused_callbacks(source, variables, lambda value: isinstance(value, Callback))
        if unused:
            arguments["callbacks"] = [callback for entry in unused for callback in entry.callbacks]
        for entry in unused:
            if entry.name not in logged:
                logged.add(entry.name)
                kinds = ", ".join(type(callback).__name__ for callback in entry.callbacks)
                log(
                    f"patched: the script never passes '{entry.name}' (line {entry.line}: {kinds}) to the training "
                    f"that line {frame.f_lineno} starts; the training now uses them (--as-is disables this patch)"
                )

    _before_fit(add_callbacks)


def save_on_rank_0(launch: Launch, log: Log) -> None:
    """Let only rank 0 write models and weights, each file atomically."""
    from tf_keras.src.saving import saving_api

    logged: set[str] = set()

    def on_rank_0(write: Callable[..., None]) -> Callable[..., None]:
        @wraps(write)
        def save(model: Any, filepath: Any, overwrite: bool = True, **others: Any) -> None:
            if not isinstance(filepath, str | os.PathLike):
                write(model, filepath, overwrite, **others)
            elif launch.rank == 0:
                _write_atomically(partial(write, model), Path(filepath), overwrite, others)
            elif launch.rank == 1 and os.fspath(filepath) not in logged:
                logged.add(os.fspath(filepath))
                log(f"patched: the script lets every rank write {filepath}; now only rank 0 does (--as-is: all ranks)")

        return save

    for function in (saving_api.save_model, saving_api.save_weights):
        keras2.replace(function, on_rank_0(function))


def accept_existing_directories(launch: Launch, log: Log) -> None:
    """Let os.makedirs of the script succeed if another rank has created the directory after the check of the script."""
    makedirs = os.makedirs

    @wraps(makedirs)
    def make_directories(name: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        is_script = sys._getframe(1).f_globals.get("__name__") == "__main__" and launch.size > 1
        try:
            makedirs(name, mode, exist_ok)
        except FileExistsError:
            if not (is_script and os.path.isdir(name)):
                raise
            log(f"patched: rank {launch.rank} continues although {name} exists; another rank may have created it")

    os.makedirs = make_directories


def _before_fit(change: Callable[[dict[str, Any]], None]) -> None:
    """Call `change` with the arguments of every `fit` and `fit_generator` before it starts."""
    from keras import Model

    original = Model.fit
    signature = inspect.signature(original)

    @wraps(original)
    def fit(*positional: Any, **named: Any) -> Any:
        call = signature.bind(*positional, **named)
        change(call.arguments)
        return original(*call.args, **call.kwargs)

    Model.fit = fit


def _caller() -> FrameType | None:
    """The frame that called Keras."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "tf_keras",
        "horovodjob_trainer",
    ):
        frame = frame.f_back
    return frame


def _write_atomically(write: Callable[..., None], target: Path, overwrite: bool, others: dict[str, Any]) -> None:
    # Keras 2.1 had a single format; tf_keras would write a directory for a name without a suffix.
    others["save_format"] = others.get("save_format") or ("h5" if target.suffix != ".keras" else None)
    if others["save_format"] == "tf" or (target.exists() and not overwrite):  # writes a directory, or Keras prompts
        write(target, overwrite, **others)
        return
    with atomic_write(target) as path:
        write(path, **others)
