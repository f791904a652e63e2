"""Data on standard output as `az` writes it: JSON, YAML, tables and tab-separated values, filtered by JMESPath."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, TypeVar

from horovodjob.client.errors import UsageError, one_line
from horovodjob.escaping import UNSAFE, escaped, escaped_data, json_escaped, shortened

# Columns of a table: title -> JMESPath expression on a record.
Table = Mapping[str, str]
Result = TypeVar("Result")
GAP = "  "
ARGUMENT = re.compile(r"`(\w+)=([^`]*)`")
# Options with another name than the argument of the library.
OPTIONS = {"destination": "dest", "mounts": "mount", "pool": "cluster", "source": "from"}


class Description(dict[str, str]):
    """The columns of one record, printed as a line for each, without those that are empty."""


class Document(dict[str, str]):
    """Columns of a record that is JSON by default, also on a terminal."""


class ShortTable(dict[str, str]):
    """Columns with values of any length, such as a program, of which a table has the beginning and the end."""


class ListTable(dict[str, str]):
    """Columns of a list; optional ones are left out if they are empty or the terminal is narrow, the last first.

    `wide` are titles of columns that are left out, the first first, if only the terminal is narrow.
    """

    def __init__(self, columns: Table, optional: Table | None = None, wide: Sequence[str] = ()) -> None:
        super().__init__({**columns, **(optional or {})})
        self.optional, self.wide = tuple(optional or ()), tuple(wide)


class Sorted:
    """Records in the order of their keys. They are read once, when they are printed, and each is held as text only."""

    def __init__(self, records: Iterable[Any], key: Callable[[Any], Any]) -> None:
        self._records, self._key = records, key

    def each(self, make: Callable[[Any], Result]) -> list[Result]:
        """What `make` makes of each record, in their order."""
        found = [(self._key(record), make(record)) for record in self._records]
        return [made for _, made in sorted(found, key=itemgetter(0))]


class Format(StrEnum):
    """Formats of the option --output."""

    JSON = "json"
    JSONC = "jsonc"
    YAML = "yaml"
    TABLE = "table"
    TSV = "tsv"
    NONE = "none"


class Printer:
    """Prints the data of a command. Raises UsageError for an invalid query, before the command runs."""

    def __init__(self, format_: Format | None, query: str | None) -> None:
        self._is_chosen = format_ is not None
        self._format = format_ or (Format.TABLE if sys.stdout.isatty() else Format.JSON)
        self._query = Query(query) if query is not None else None

    def write(self, data: Any, table: Table | None) -> None:
        """Print the data; None prints nothing."""
        if data is None:
            return
        if isinstance(table, Document) and not self._is_chosen:
            self._format = Format.JSON
        if isinstance(data, Sorted):
            if self._query is None and self._format is Format.JSON:
                write_json_list(data.each(json_text))
                return
            if self._query is not None or self._format is not Format.TABLE:
                data = data.each(lambda record: record)
        if self._query is not None:
            data, table = self._query.result(data), None
        if text := self._text(data, table):
            sys.stdout.write(f"{text}\n")

    def _text(self, data: Any, table: Table | None) -> str:
        match self._format:
            case Format.NONE:
                return ""
            case Format.YAML:
                return yaml_text([data]).rstrip("\n").removesuffix("\n...")
            case Format.TABLE:
                return table_text(data, table)
            case Format.TSV:
                return "\n".join(tsv_lines(data))
            case Format.JSONC if uses_color():
                return colored(json_text(data))
        return json_text(data)


class Query:
    """A JMESPath expression. Raises UsageError with the position of an error."""

    def __init__(self, text: str) -> None:
        import jmespath

        self._text = text
        try:
            self._expression = jmespath.compile(text)
        except jmespath.exceptions.JMESPathError as error:
            position = getattr(error, "lex_position", None)
            where = f" at character {position + 1}" if position is not None else ""
            raise UsageError(f"--query {text!r} is not a valid JMESPath expression{where}; see jmespath.org") from error

    def result(self, data: Any) -> Any:
        """The selected data. Raises UsageError if a function does not accept the data."""
        from jmespath.exceptions import JMESPathError

        try:
            return self._expression.search(data)
        except JMESPathError as error:
            raise UsageError(f"--query {self._text!r} cannot be applied to the data: {one_line(error)}") from error


def uses_color() -> bool:
    """Whether standard output has colors: a terminal, unless the user sets NO_COLOR (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def as_options(sentence: str) -> str:
    """A sentence of the client library with options of the command line in place of arguments such as `gpus=0`."""
    return ARGUMENT.sub(lambda match: f"--{_option(match[1])} {match[2]}".rstrip(), sentence)


def _option(argument: str) -> str:
    return OPTIONS.get(argument, argument.replace("_", "-"))


def json_text(data: Any) -> str:
    """Indented by two, as `az` prints it."""
    return json_escaped(json.dumps(data, indent=2, ensure_ascii=False))


def yaml_text(documents: Iterable[Any], width: int = 80) -> str:
    """YAML documents. Where characters are unsafe, each one beyond ASCII is an escape sequence."""
    import yaml

    found = list(documents)

    def dump(*, allow_unicode: bool) -> str:
        return str(yaml.safe_dump_all(found, sort_keys=False, allow_unicode=allow_unicode, width=width))

    text = dump(allow_unicode=True)
    return dump(allow_unicode=False) if UNSAFE.search(text) else text


def write_json_list(items: Sequence[str]) -> None:
    """Print the JSON of a list, from that of its items."""
    for number, item in enumerate(items):
        indented = item.replace("\n", "\n  ")
        sys.stdout.write(f"{',' if number else '['}\n  {indented}")
    sys.stdout.write("\n]\n" if items else "[]\n")


def colored(text: str) -> str:
    """JSON with colors for a terminal."""
    import io

    from rich.console import Console
    from rich.syntax import Syntax

    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, width=10_000)
    console.print(Syntax(text, "json", theme="ansi_dark", background_color="default"), soft_wrap=True, end="")
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def table_text(data: Any, table: Table | None) -> str:
    """Rows below a line of dashes; on a narrow terminal, a block of lines for each row."""
    if not isinstance(data, list | dict | Sorted):
        return cell(data)
    records = [data] if isinstance(data, dict) else data
    if isinstance(records, list) and isinstance(table, Description):
        return "\n\n".join(described(record, table) for record in records)
    titles, rows = _selected(records, table) if table is not None else _automatic(records)
    if not rows:
        return ""
    if isinstance(table, ListTable):
        titles, rows = without_optional_columns(titles, rows, table)
    if not fits(titles, rows):
        return blocks(titles, rows)
    columns = list(zip(*rows, strict=True))
    numeric = [all(is_number(each) for each in column if each) and any(column) for column in columns]
    widths = _widths(titles, rows)
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join(_line(line, widths, numeric) for line in lines)


def without_optional_columns(
    titles: Sequence[str], rows: Sequence[Sequence[str]], table: ListTable
) -> tuple[list[str], list[list[str]]]:
    """The columns without optional ones that are empty, and without others of them until the terminal fits."""
    filled = [title for title, *cells in zip(titles, *rows, strict=True) if title not in table.optional or any(cells)]
    kept = [titles.index(title) for title in filled]
    for title in [*table.wide, *reversed(table.optional)]:
        if fits(*_columns(kept, titles, rows)):
            break
        kept = [index for index in kept if titles[index] != title]
    return _columns(kept, titles, rows)


def fits(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the table is no wider than the terminal; without a terminal, each table fits."""
    width = sum(_widths(titles, rows)) + len(GAP) * (len(titles) - 1)
    return not sys.stdout.isatty() or width <= shutil.get_terminal_size().columns


def _columns(
    kept: Sequence[int], titles: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    return [titles[index] for index in kept], [[row[index] for index in kept] for row in rows]


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(titles, *rows, strict=True)]


def described(record: Any, table: Description) -> str:
    """A line for each column that has a value, and for each item of a list, wrapped at the width of the terminal."""
    import jmespath

    found = {title: jmespath.search(expression, record) for title, expression in table.items()}
    values = {title: value for title, value in found.items() if value not in (None, "", [])}
    indent = max(map(len, values), default=0) + len(GAP)
    lines = []
    for title, value in values.items():
        items = value if isinstance(value, list) else [fields_text(value) if isinstance(value, dict) else value]
        wrapped = [line for item in items for line in _wrapped(cell(item), indent)]
        lines += [
            f"{head.ljust(indent)}{line}" for head, line in zip([title, *[""] * len(wrapped)], wrapped, strict=False)
        ]
    return "\n".join(lines)


def fields_text(fields: Mapping[str, Any]) -> str:
    """The fields of an object beside their values with five digits, such as `loss 0.25, accuracy 0.9`."""
    values = {name: f"{value:.5g}" if isinstance(value, float) else cell(value) for name, value in fields.items()}
    return ", ".join(f"{escaped(name)} {value}" for name, value in values.items())


def _wrapped(text: str, indent: int) -> list[str]:
    """The lines of a text beside an indent on a terminal; the text otherwise."""
    import textwrap

    width = shutil.get_terminal_size().columns - indent
    return textwrap.wrap(text, max(width, 20), subsequent_indent=GAP) if sys.stdout.isatty() else [text]


def blocks(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line for each cell, rows separated by an empty line."""
    width = max(map(len, titles))
    return "\n\n".join(
        "\n".join(f"{title.ljust(width)}{GAP}{value}".rstrip() for title, value in zip(titles, row, strict=True))
        for row in rows
    )


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    justified = (
        each.rjust(width) if right else each.ljust(width)
        for each, width, right in zip(cells, widths, numeric, strict=True)
    )
    return GAP.join(justified).rstrip()


def _selected(records: Sequence[Any] | Sorted, table: Table) -> tuple[list[str], list[list[str]]]:
    import jmespath

    expressions = [jmespath.compile(expression) for expression in table.values()]

    limited = shortened if isinstance(table, ShortTable) else str

    def cells(record: Any) -> list[str]:
        return [limited(cell(expression.search(record))) for expression in expressions]

    return [limited(cell(title)) for title in table], _each(records, cells)


def _each(records: Sequence[Any] | Sorted, make: Callable[[Any], Result]) -> list[Result]:
    return records.each(make) if isinstance(records, Sorted) else list(map(make, records))


def _automatic(records: Sequence[Any] | Sorted) -> tuple[list[str], list[list[str]]]:
    """As `az` chooses them: scalar fields with a capital letter, values of a list of lists as Column1, Column2."""
    found = _each(records, _fields)
    titles = list(dict.fromkeys(title for fields in found for title in fields))
    return titles, [[fields.get(title, "") for title in titles] for fields in found] if titles else []


def _fields(record: Any) -> dict[str, str]:
    if isinstance(record, dict):
        scalars = {key: value for key, value in record.items() if not isinstance(value, list | dict)}
        return {escaped(key[:1].upper() + key[1:]): cell(value) for key, value in scalars.items()}
    if isinstance(record, list):
        return {f"Column{number}": cell(value) for number, value in enumerate(record, 1)}
    return {"Result": cell(record)}


def cell(value: Any) -> str:
    """A value in a table, with harmless text: empty for null, one line for text."""
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return json.dumps(escaped_data(value), ensure_ascii=False)
    return " ".join(escaped(str(value)).splitlines())


def is_number(text: str) -> bool:
    """Whether a cell is aligned to the right."""
    return text.removeprefix("-").replace(".", "", 1).isdigit()


def tsv_lines(data: Any) -> list[str]:
    """A line for each item, with tabs between its values; as `az`, nested lists are counted and objects empty."""
    items = data if isinstance(data, list) else [data]
    return ["\t".join(tsv_values(item)) for item in items]


def tsv_values(item: Any) -> list[str]:
    """The values of one line."""
    if isinstance(item, dict):
        return [tsv_cell(value) for value in item.values()]
    if isinstance(item, list):
        return [tsv_cell(value) for value in item]
    return [tsv_cell(item)]


def tsv_cell(value: Any) -> str:
    """A scalar as text, a list as the number of its items, an object as empty text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, dict):
        return ""
    return cell(value)
