"""A function, such as one of a notebook, as a script: its source, with what it uses of the module around it."""

import ast
import inspect
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from horovodjob.client.errors import UsageError

Function = Callable[..., Any]
# --NAME=VALUE is what a sweep adds. A value that is no literal of Python is text.
CALL = """
if __name__ == "__main__":
    import ast
    import sys

    def _value(text):
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text

    _given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
    {name}(*{args}, **{{**{kwargs}, **{{key.replace("-", "_"): _value(text) for key, text in _given.items()}}}})
"""


def write(function: Function, arguments: Sequence[object], args: object, directory: Path) -> Path:
    """A script in the directory that calls the function. Raises UsageError for what cannot be sent."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>":
        raise UsageError(f"{function!r} is no function with a name and a source; define one with def")
    name = function.__name__
    positional = [*arguments, *(args if isinstance(args, Sequence) and not isinstance(args, str) else ())]
    named = dict(args) if isinstance(args, Mapping) else {}
    if not isinstance(args, Mapping | Sequence) or isinstance(args, str):
        raise UsageError(f"args of {name} must be a list, or a dictionary of its arguments by name")
    for what, value in (*enumerate(positional, 1), *named.items()):
        if not _is_literal(value):
            raise UsageError(f"argument {what} of {name} is a {type(value).__name__}, which cannot be sent: {SENT}")
    parts: dict[str, str] = {}
    _add(function, parts)
    path = directory / f"{name}.py"
    text = "\n\n".join(parts.values()) + "\n" + CALL.format(name=name, args=positional, kwargs=named)
    path.write_text(text, encoding="utf-8")
    return path


def modules_of(script: Path, directory: Path) -> list[str]:
    """The modules of a directory that a script imports, also in its functions."""
    found: dict[str, None] = {}
    for each in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(each, ast.Import):
            found |= dict.fromkeys(alias.name.partition(".")[0] for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            found[each.module.partition(".")[0]] = None
    return [
        name for name in found if (directory / f"{name}.py").is_file() or (directory / name / "__init__.py").is_file()
    ]


SENT = "use numbers, text, lists and dictionaries, and make everything else inside the function"


def _add(function: FunctionType, parts: dict[str, str]) -> None:
    """Add the source of the function, after what it uses of its module."""
    function = inspect.unwrap(function)  # the module of the function, and not that of its decorator
    name, source = function.__name__, _source(function)
    parts[name] = ""  # so that a function which calls itself is added once
    used = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    _add_used(source, used, function, parts)
    del parts[name]
    parts[name] = source


def _add_used(source: str, used: Mapping[str, object], function: FunctionType, parts: dict[str, str]) -> None:
    """Add what the source takes from outside."""
    for each in _names(symtable.symtable(source, function.__name__, "exec")):
        # The script has a __name__ of its own.
        if each in used and each not in parts and not each.startswith("__"):
            _add_value(each, used[each], function, parts)


def _add_value(name: str, value: object, function: FunctionType, parts: dict[str, str]) -> None:
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, FunctionType | type) and value.__module__ == function.__module__:
        if value.__name__ not in parts:
            _add(value, parts) if isinstance(value, FunctionType) else _add_class(value, function, parts)
        if value.__name__ != name:
            parts[name] = f"{name} = {value.__name__}"
    elif (module := getattr(value, "__module__", None)) not in (None, "__main__", function.__module__) and hasattr(
        value, "__qualname__"
    ):
        parts[name] = f"from {module} import {getattr(value, '__qualname__')} as {name}"  # noqa: B009
    elif _is_literal(value):
        parts[name] = f"{name} = {value!r}"
    else:
        raise UsageError(
            f"{function.__name__} uses {name}, a {type(value).__name__} from outside, which cannot be sent: {SENT}"
        )


def _add_class(value: type, function: FunctionType, parts: dict[str, str]) -> None:
    source = _source(value)
    parts[value.__name__] = ""
    _add_used(source, function.__globals__, function, parts)
    del parts[value.__name__]
    parts[value.__name__] = source


def _source(thing: FunctionType | type) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(thing))
        ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        raise UsageError(
            f"the source of {thing.__name__} is not known, because it was not written in a file or a cell: write it "
            "into a script"
        ) from None
    return source.rstrip("\n")


def _names(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that a source takes from outside: in its functions and classes, annotations, defaults, decorators."""
    for symbol in table.get_symbols():
        if symbol.is_referenced() and symbol.is_global():
            yield symbol.get_name()
    for child in table.get_children():
        yield from _names(child)


def _is_literal(value: object) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return False
