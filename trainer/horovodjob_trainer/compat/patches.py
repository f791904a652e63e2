"""What is done to a script's training and files from outside: repairs of two mistakes, and no half-written file."""

import inspect
import linecache
import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import Any

from horovodjob_trainer.atomic_file import whole
from horovodjob_trainer.compat import keras2
from horovodjob_trainer.compat.unused_callbacks import forgotten
from horovodjob_trainer.launch import Launch

Say = Callable[[str], None]


def cap_epochs(most: int) -> None:
    """Ends every training after so many epochs."""

    def capped(arguments: dict[str, Any]) -> None:
        arguments["epochs"] = min(arguments.get("epochs", 1), most)

    _before_fit(capped)


def pass_forgotten_callbacks(say: Say) -> None:
    """Passes callbacks that the script builds and never uses to a fit that gets none."""
    from keras.callbacks import Callback

    told: set[str] = set()

    def complete(arguments: dict[str, Any]) -> None:
        frame = _caller()
        if arguments.get("callbacks") or frame is None:
            return
        source = "".join(linecache.getlines(frame.f_code.co_filename))  # nothing of what exec was given as a string
        variables = {**frame.f_globals, **frame.f_locals}
        found = forgotten(source, variables, lambda value: isinstance(value, Callback))
        if found:
            arguments["callbacks"] = [callback for one in found for callback in one.callbacks]
        for one in found:
            if one.name not in told:
                told.add(one.name)
                kinds = ", ".join(type(callback).__name__ for callback in one.callbacks)
                say(
                    f"repaired: the script never passes '{one.name}' (line {one.line}: {kinds}) to the training that "
                    f"line {frame.f_lineno} starts; now they take part (--as-is leaves them out)"
                )

    _before_fit(complete)


def save_on_rank_0(launch: Launch, say: Say) -> None:
    """Lets rank 0 alone write models and weights, each file whole or not at all."""
    from tf_keras.src.saving import saving_api

    told: set[str] = set()

    def alone(write: Callable[..., None]) -> Callable[..., None]:
        @wraps(write)
        def save(model: Any, filepath: Any, overwrite: bool = True, **others: Any) -> None:
            if not isinstance(filepath, str | os.PathLike):
                write(model, filepath, overwrite, **others)
            elif launch.rank == 0:
                _write_whole(partial(write, model), Path(filepath), overwrite, others)
            elif launch.rank == 1 and os.fspath(filepath) not in told:
                told.add(os.fspath(filepath))
                say(f"repaired: the script lets every rank write {filepath}; now rank 0 does alone (--as-is: all)")

        return save

    for function in (saving_api.save_model, saving_api.save_weights):
        keras2.replace(function, alone(function))


def tolerate_other_ranks_directories(launch: Launch, say: Say) -> None:
    """Lets the script's os.makedirs find a directory that another rank has made since the script looked."""
    makedirs = os.makedirs

    @wraps(makedirs)
    def tolerant(name: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        own = sys._getframe(1).f_globals.get("__name__") == "__main__" and launch.size > 1
        try:
            makedirs(name, mode, exist_ok)
        except FileExistsError:
            if not (own and os.path.isdir(name)):
                raise
            say(f"repaired: rank {launch.rank} goes on though {name} exists, as another rank may have just made it")

    os.makedirs = tolerant


def _before_fit(change: Callable[[dict[str, Any]], None]) -> None:
    """Shows the arguments of every fit, fit_generator included, to `change` before it begins."""
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
    """The frame that called into Keras."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (
        "tf_keras",
        "horovodjob_trainer",
    ):
        frame = frame.f_back
    return frame


def _write_whole(write: Callable[..., None], target: Path, overwrite: bool, others: dict[str, Any]) -> None:
    # Keras 2.1 had one format, whatever the name; tf_keras would make directories of names without a suffix.
    others["save_format"] = others.get("save_format") or ("h5" if target.suffix != ".keras" else None)
    if others["save_format"] == "tf" or (target.exists() and not overwrite):  # a directory, or Keras asks
        write(target, overwrite, **others)
        return
    with whole(target) as path:
        write(path, **others)
