"""Objects of the user's own code, named as `package.module:object`."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from horovodjob_trainer.errors import UsageError


def is_reference(text: str) -> bool:
    """Whether the text names an object of a module rather than one of the trainer's own things."""
    return ":" in text


def function(reference: str) -> Callable[..., Any]:
    """The function of that name, looked for in the current directory, then as Python looks for modules.

    Raises UsageError with one sentence.
    """
    module_name, _, name = reference.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"'{reference}' does not have the form package.module:function")
    module = _module(module_name)
    found = getattr(module, name, None)
    if not callable(found):
        state = "has no" if found is None else "has, but cannot call,"
        raise UsageError(f"module {module_name} ({module.__file__}) {state} '{name}'")
    return found  # type: ignore[no-any-return]


def called(reference: str, **offered: Any) -> Any:
    """What the function gives for those of the offered arguments that it declares.

    Raises UsageError where it requires another argument; its own errors are not caught.
    """
    target = function(reference)
    arguments, missing = _declared(target, offered)
    if missing:
        raise UsageError(f"{reference} requires '{missing[0]}'; it is offered {', '.join(offered)}")
    return target(**arguments)


def _module(name: str) -> Any:
    # `python -m` does this by itself, the installed command does not.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise UsageError(
                f"there is no module {name} in {os.getcwd()} or on PYTHONPATH; start there or set PYTHONPATH"
            ) from error
        raise UsageError(_import_failed(name, error)) from error
    except Exception as error:
        raise UsageError(_import_failed(name, error)) from error


def _import_failed(name: str, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else f"{last.filename}:{last.lineno}"
    reason = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"module {name} cannot be imported: {type(error).__name__} at {place}: {reason}"


def _declared(target: Callable[..., Any], offered: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    parameters = inspect.signature(target).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return offered, []
    names = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    missing = [each.name for each in names if each.default is each.empty and each.name not in offered]
    return {each.name: offered[each.name] for each in names if each.name in offered}, missing
