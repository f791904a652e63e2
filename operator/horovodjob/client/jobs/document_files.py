"""Files with objects in JSON or YAML, within bounds: none takes more than a second or much memory."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from horovodjob.client.errors import UsageError
from horovodjob.document import MOST_LEVELS

Object = dict[str, Any]
MOST_CHARACTERS = 3 << 20  # the API server's limit of a request
MOST_VALUES = 20_000
# The parser in Python names the exact position of an error; libyaml, which a build of PyYAML can lack, is ten times as
# fast.
MOST_CHARACTERS_IN_PYTHON = 1 << 16


def documents(path: Path) -> list[Object]:
    """The objects of a file in JSON or YAML; `-` is standard input. Raises UsageError."""
    found = _parsed(path, _text(path))
    if not found:
        raise UsageError(f"{path} is empty; it must contain a job.json of Batch AI or a HorovodJob")
    for document in found:
        if not isinstance(document, dict):
            raise UsageError(f"{path} has {type(document).__name__} where an object with the fields of a job belongs")
    return found


def _text(path: Path) -> str:
    try:
        if str(path) == "-":
            text = sys.stdin.read(MOST_CHARACTERS + 1)
        else:
            with path.open(encoding="utf-8-sig") as file:
                text = file.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{path} has more than {MOST_CHARACTERS >> 20} MiB, which is not the file of a job")
    return text


def _parsed(path: Path, text: str) -> list[Any]:
    try:
        if text.lstrip().startswith("{"):
            document = json.loads(text)
            _check_json(path, document)
            return [document]
        _check_yaml(path, text)
        return [document for document in yaml.load_all(text, _loader(text)) if document is not None]
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UsageError(f"{path} is not valid YAML: {where}{getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise _too_large(path) from None
    except ValueError as error:  # a date that does not exist, a number with thousands of digits
        raise UsageError(f"{path} has a value that cannot be read: {error}; put it into quotes") from None


def _loader(text: str) -> Any:
    if len(text) <= MOST_CHARACTERS_IN_PYTHON:
        return yaml.SafeLoader
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_json(path: Path, document: Any) -> None:
    """Raises UsageError for a document that is larger or deeper than any job."""
    level, count = [document], 0
    for _ in range(MOST_LEVELS + 1):
        count += len(level)
        collections = [value for value in level if isinstance(value, Mapping | list)]
        level = [inner for each in collections for inner in (each.values() if isinstance(each, Mapping) else each)]
        if not level:
            break
    if level or count > MOST_VALUES:
        raise _too_large(path)


@dataclass(slots=True)
class _Collection:
    """A list or object of a YAML file that has not ended: values before it, and levels in it."""

    anchor: str | None
    before: int
    keys: set[str] | None = None
    is_at_key: bool = False
    levels: int = 1

    def repeated_key(self, event: yaml.NodeEvent) -> str | None:
        """The next key of this object if the object already has it: a parser would use the last of both values."""
        if self.keys is None:
            return None
        self.is_at_key = not self.is_at_key
        if not self.is_at_key or not isinstance(event, yaml.ScalarEvent):
            return None
        if event.value in self.keys:
            return str(event.value)
        self.keys.add(event.value)
        return None


def _check_yaml(path: Path, text: str) -> None:
    """Raises UsageError for YAML that is larger or deeper than any job, or repeats a key; aliases count in full."""
    count, open_ = 0, [_Collection(None, 0)]
    ended: dict[str, tuple[int, int]] = {}
    for event in yaml.parse(text, _loader(text)):
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.NodeEvent) and (key := open_[-1].repeated_key(event)) is not None:
            where = f", again in line {event.start_mark.line + 1}" if event.start_mark else ""
            raise UsageError(f"{path} has {key} twice in one object{where}: remove one of them")
        if isinstance(event, yaml.CollectionEndEvent):
            last = open_.pop()
            open_[-1].levels = max(open_[-1].levels, last.levels + 1)
            if last.anchor is not None:
                ended[last.anchor] = count - last.before, last.levels
        elif isinstance(event, yaml.CollectionStartEvent):
            if anchor is not None:
                ended[anchor] = MOST_VALUES, 0  # until it ends: an alias in it would repeat it forever
            open_.append(_Collection(anchor, count, set() if isinstance(event, yaml.MappingStartEvent) else None))
            count += 1
        elif isinstance(event, yaml.AliasEvent):
            values, levels = ended.get(anchor or "", (1, 0))
            count += values
            open_[-1].levels = max(open_[-1].levels, levels + 1)
        elif isinstance(event, yaml.ScalarEvent):
            count += 1
            if anchor is not None:
                ended[anchor] = 1, 0
        if count > MOST_VALUES or len(open_) + open_[-1].levels > MOST_LEVELS + 2:
            raise _too_large(path)


def _too_large(path: Path) -> UsageError:
    return UsageError(
        f"{path} has more than {MOST_LEVELS} levels or {MOST_VALUES} values: write a job with fewer, without aliases"
    )
