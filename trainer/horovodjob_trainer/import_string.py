"""Import strings: functions of the user's code, named as `package.module:function`."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from horovodjob_trainer.errors import UsageError


def is_import_string(text: str) -> bool:
    """Whether the text is an import string rather than a name that the trainer defines."""
    return ":" in text


def import_function(import_string: str) -> Callable[..., Any]:
    """Import the function from the current directory or from the module search path of Python.

    Raises UsageError with one sentence.
    """
    module_name, _, name = import_string.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(f"'{import_string}' does not have the form package.module:function")
    module = _import_module(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        problem = f"has no '{name}'" if function is None else f"has '{name}', which is not callable"
        raise UsageError(f"module {module_name} ({module.__file__}) {problem}")
    return function  # type: ignore[no-any-return]


def call_function(import_string: str, **available: Any) -> Any:
    """Call the function with those of the available arguments that it declares.

    Raises UsageError if it requires another argument. Errors of the function itself are not caught.
    """
    function = import_function(import_string)
    arguments, missing = _declared_arguments(function, available)
    if missing:
        raise UsageError(f"{import_string} requires '{missing[0]}'; available are {', '.join(available)}")
    return function(**arguments)


def _import_module(name: str) -> Any:
    # `python -m` adds the current directory, the installed command does not.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise UsageError(
                f"there is no module {name} in {os.getcwd()} or on PYTHONPATH; start in its directory or set PYTHONPATH"
            ) from error
        raise UsageError(_import_error(name, error)) from error
    except Exception as error:
        raise UsageError(_import_error(name, error)) from error


def _import_error(name: str, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else f"{last.filename}:{last.lineno}"
    reason = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return f"module {name} cannot be imported: {type(error).__name__} at {place}: {reason}"


def _declared_arguments(function: Callable[..., Any], available: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return available, []
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    missing = [p.name for p in named if p.default is p.empty and p.name not in available]
    return {p.name: available[p.name] for p in named if p.name in available}, missing
