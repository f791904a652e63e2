"""The report in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from horovodjob_trainer.gpu_diagnostics.node import Node

OUTPUT_LINES = 30


class Outcome(Enum):
    """How a part ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Table:
    """The measurements of a part. A problem is a sentence that makes the part fail."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PartReport:
    """Outcome of a part, with the output of all ranks if a program failed."""

    name: str
    outcome: Outcome
    seconds: float
    message: str = ""
    output: str = ""
    table: Table | None = None


def report(node: Node, parts: Sequence[PartReport]) -> str:
    """The whole report: a table of the outcomes, then a section for each part that has more."""
    device = f"{node.ranks} GPU{'' if node.ranks == 1 else 's'}" if node.has_gpus else "CPU, no measurement of a GPU"
    title = f"# GPU diagnostics: {device}"
    date = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC{', --quick' if node.quick else ''}"
    outcomes = [(part.name, part.outcome.value, f"{part.seconds:.0f}", part.message) for part in parts]
    overview = _format_table(Table(("part", "outcome", "seconds", "message"), tuple(outcomes)))
    return "\n\n".join([title, date, overview, *(_section(part) for part in parts if part.table or part.output)])


def _section(part: PartReport) -> str:
    lines = [f"## {part.name}"]
    if part.table:
        lines.append(_format_table(part.table))
    if part.output:
        # Four backticks, because the output can contain three.
        lines.append("\n".join(["````text", *part.output.splitlines()[-OUTPUT_LINES:], "````"]))
    return "\n\n".join(lines)


def _format_table(table: Table) -> str:
    rows = [table.columns, ("---",) * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in row)} |" for row in rows)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
