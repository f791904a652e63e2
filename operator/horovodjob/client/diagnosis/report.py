"""The results of the doctor as paragraphs for a terminal."""

import textwrap
from collections.abc import Sequence

from horovodjob.client.diagnosis.cluster_facts import CheckResult, Outcome
from horovodjob.escaping import escaped

# Escape sequences: bold red, yellow, dim, green.
COLORS = {Outcome.BLOCKS: "1;31", Outcome.WARNING: "33", Outcome.NOT_CHECKED: "2", Outcome.OK: "32"}
WIDTH = max(map(len, Outcome)) + 2


def report(results: Sequence[CheckResult], columns: int, *, in_color: bool) -> str:
    """A paragraph for each result: its outcome, the wrapped message, and the command in one line, to be copied."""
    lines = []
    for result in results:
        outcome = result.outcome.value.ljust(WIDTH)
        if in_color:
            outcome = f"\x1b[{COLORS[result.outcome]}m{outcome}\x1b[0m"
        indent = " " * WIDTH
        message = textwrap.wrap(
            escaped(f"{result.check}: {result.message}"), max(columns - WIDTH, 20), break_on_hyphens=False
        )
        lines += [outcome + message[0], *(indent + line for line in message[1:])]
        if result.command:
            lines.append(f"{indent}$ {escaped(result.command)}")
    return "\n".join(lines)
