"""Finds callbacks that a script builds and never uses. Reads the script's text; changes nothing."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What fills a list without making use of it.
FILLING = ("append", "extend", "insert")


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Callbacks that the variable `name`, first set in `line`, holds and that no line of the script reads."""

    name: str
    line: int
    callbacks: tuple[Any, ...]


def forgotten(source: str, variables: Mapping[str, Any], is_callback: Callable[[Any], bool]) -> tuple[Forgotten, ...]:
    """Callbacks among the variables that the source sets and, except to fill a list, never reads again.

    What nobody reads nobody can pass on: so the script's author forgot it, whatever the script would do next.
    """
    unread = _never_read(source)
    return tuple(
        Forgotten(name, line, held)
        for name, line in unread.items()
        if name in variables and (held := _callbacks(variables[name], is_callback))
    )


def _callbacks(value: Any, is_callback: Callable[[Any], bool]) -> tuple[Any, ...]:
    held = tuple(value) if isinstance(value, list | tuple) else (value,)
    return held if all(is_callback(item) for item in held) else ()


def _never_read(source: str) -> dict[str, int]:
    """Names that are set and never read, with the line that sets them first, in the order of these lines."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the file is being edited while it runs
        return {}
    filled = {id(receiver) for receiver in _filled(tree)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load) and id(node) not in filled}
    first: dict[str, int] = {}
    for node in sorted(names, key=lambda node: node.lineno):
        if isinstance(node.ctx, ast.Store) and node.id not in read:
            first.setdefault(node.id, node.lineno)
    return first


def _filled(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr in FILLING:
                yield function.value
