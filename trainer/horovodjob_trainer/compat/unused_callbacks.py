"""Finds callbacks that a script creates and never uses, by an analysis of its source."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Methods that add to a list without reading it.
ADDING_METHODS = ("append", "extend", "insert")


@dataclass(frozen=True, slots=True)
class UnusedCallbacks:
    """Callbacks in the variable `name`, which is first set in `line` and which no line of the script reads."""

    name: str
    line: int
    callbacks: tuple[Any, ...]


def find_unused_callbacks(
    source: str, variables: Mapping[str, Any], is_callback: Callable[[Any], bool]
) -> tuple[UnusedCallbacks, ...]:
    """Callbacks in variables that the source sets and never reads, except to add to a list.

    A script cannot pass a variable that it never reads, so the callbacks are unused for certain.
    """
    unread = _unread_names(source)
    return tuple(
        UnusedCallbacks(name, line, callbacks)
        for name, line in unread.items()
        if name in variables and (callbacks := _callbacks(variables[name], is_callback))
    )


def _callbacks(value: Any, is_callback: Callable[[Any], bool]) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values if all(is_callback(item) for item in values) else ()


def _unread_names(source: str) -> dict[str, int]:
    """Names that are set and never read, with the first line that sets them, in the order of these lines."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the file was edited after the start
        return {}
    receivers = {id(receiver) for receiver in _receivers_of_additions(tree)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load) and id(node) not in receivers}
    first: dict[str, int] = {}
    for node in sorted(names, key=lambda node: node.lineno):
        if isinstance(node.ctx, ast.Store) and node.id not in read:
            first.setdefault(node.id, node.lineno)
    return first


def _receivers_of_additions(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr in ADDING_METHODS:
                yield function.value
