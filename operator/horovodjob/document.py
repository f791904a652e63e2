"""A parsed JSON or YAML document, read field by field; a field that is missing or has the wrong type is a problem."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from horovodjob.conversion import Notes

LARGEST = 10**18
MOST_LEVELS = 100


def root(document: Any, notes: Notes, what: str) -> "Node":
    """The document as an object. Raises ConversionError for anything else."""
    if not isinstance(document, Mapping):
        notes.refuse("", f"the file must have one object: {what}")
    elif _is_deep(document):
        notes.refuse("", f"the file has more than {MOST_LEVELS} levels of objects and lists: {what} has fewer")
    notes.raise_problems()
    return Node(document, "", notes)


@dataclass(frozen=True, slots=True)
class Node:
    """An object of the document. A null counts as absent; numbers can be strings."""

    value: Mapping[str, Any]
    path: str
    notes: Notes

    def at(self, key: str) -> str:
        """Path of one of its fields."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Whether the field is given."""
        return self.value.get(key) is not None

    def text(self, key: str) -> str | None:
        """A string, or None where it is absent, empty or not a string."""
        value = self.value.get(key)
        if value is None or isinstance(value, str):
            return value or None
        self.notes.refuse(self.at(key), "must be a string: put it into quotes")
        return None

    def scalar(self, key: str) -> str | None:
        """A string or a number, as a string; it can be empty."""
        value = self.value.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST:
            return str(value)
        return value if value == "" else self.text(key)

    def required_text(self, key: str) -> str | None:
        """The same as text(); an absent or empty one is a problem."""
        if self.value.get(key) in (None, ""):
            self.notes.refuse(self.at(key), "is missing: add it")
        return self.text(key)

    def number(self, key: str, least: int, most: int) -> int | None:
        """A whole number, which can be written as a string."""
        value = self.value.get(key)
        if value is None:
            return None
        number = _whole(value)
        if number is None:
            self.notes.refuse(self.at(key), "must be a whole number")
        elif not least <= number <= most:
            self.notes.refuse(self.at(key), f"must be from {least} to {most}, and is {number}")
        else:
            return number
        return None

    def flag(self, key: str) -> bool | None:
        """A boolean."""
        value = self.value.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.notes.refuse(self.at(key), "must be true or false")
        return None

    def child(self, key: str) -> "Node | None":
        """An object."""
        value = self.value.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return Node(value, self.at(key), self.notes)
        self.notes.refuse(self.at(key), "must be an object")
        return None

    def items(self, key: str) -> list[Any]:
        """A list; empty where it is absent."""
        value = self.value.get(key)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.notes.refuse(self.at(key), "must be a list")
        return []

    def children(self, key: str) -> "list[Node]":
        """A list of objects."""
        nodes = []
        for index, value in enumerate(self.items(key)):
            path = f"{self.at(key)}[{index}]"
            if isinstance(value, Mapping):
                nodes.append(Node(value, path, self.notes))
            else:
                self.notes.refuse(path, "must be an object")
        return nodes


def unknown_keys(value: Any, known: Collection[str], path: str = "") -> Iterator[tuple[str, str | None]]:
    """Paths of keys that are not among the known, such as `a.b[].c`, each with the known key that may be meant."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_keys(item, known, f"{path}[{index}]")
    if not isinstance(value, Mapping):
        return
    general = re.sub(r"\[\d+\]", "[]", path)
    start = f"{general}." if general else ""
    keys = {re.split(r"[.[]", field.removeprefix(start))[0] for field in known if field.startswith(start)}
    if not keys:  # a leaf: what it holds is reported as being of the wrong type
        return
    for key, inner in value.items():
        here = f"{path}.{key}" if path else str(key)
        if key in keys:
            yield from unknown_keys(inner, known, here)
        elif inner is not None:
            close = difflib.get_close_matches(str(key), keys, 1, 0.8)
            yield here, close[0] if close else None


def _is_deep(document: Any) -> bool:
    """Whether reading it, level by level, would exceed Python's stack."""
    level = [document]
    for _ in range(MOST_LEVELS):
        inner = [value.values() if isinstance(value, Mapping) else value for value in level]
        level = [value for values in inner for value in values if isinstance(value, Mapping | list)]
        if not level:
            return False
    return True


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        text = value.strip()
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
    return int(value) if abs(value) < LARGEST and value == int(value) else None
