"""The table of values in a chart's README.md, from the comments of values.yaml: `python -m charts.readme CHART...`.

A comment that begins with `# --` documents the value below it, as in helm-docs, which costs a build of a Go module.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

HEADING = "## Values\n"
MARK = "# -- "


def documented_values(text: str) -> Iterator[tuple[str, str, str]]:
    """Path, default as JSON and documentation of each value, which may be empty."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        yield from _values(root, "", text.splitlines())


def _values(node: yaml.MappingNode, prefix: str, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for key, value in node.value:
        path, comment = f"{prefix}{key.value}", _comment(lines, key.start_mark.line)
        parent = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        if parent and _comment(lines, value.value[0][0].start_mark.line):
            if comment:
                yield path, "", comment
            yield from _values(value, f"{path}.", lines)
        else:
            default = yaml.load(yaml.serialize(value, Dumper=yaml.SafeDumper), Loader=yaml.SafeLoader)
            yield path, json.dumps(default, ensure_ascii=False), comment


def _comment(lines: list[str], line: int) -> str:
    """The comment above a line, from `# --` on."""
    words: list[str] = []
    while line and (above := lines[line - 1].strip()).startswith("#"):
        words.insert(0, above.removeprefix(MARK).removeprefix("#").strip())
        if above.startswith(MARK):
            return " ".join(words)
        line -= 1
    return ""


def readme(chart: Path) -> str:
    """The text of README.md with the table of the present values."""
    before = (chart / "README.md").read_text().partition(HEADING)[0]
    rows = [
        " | ".join(("", f"`{path}`", f"`{default}`" if default else "", comment, "")).strip().replace("|  |", "| |")
        for path, default, comment in documented_values((chart / "values.yaml").read_text())
    ]
    return "\n".join([before + HEADING, "| value | default | meaning |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    for directory in map(Path, sys.argv[1:]):
        (directory / "README.md").write_text(readme(directory))
        print(f"wrote {directory}/README.md")
