"""Sentences about `status.training`: its goodput and its slowest rank. Pure."""

from collections.abc import Mapping
from typing import Any

NAMES = {
    "steps": "steps",
    "starting": "starting",
    "setup": "set-up and compilation",
    "input": "input",
    "exchange": "exchange wait",
    "validation": "validation",
    "checkpoints": "checkpoints",
    "stalled": "stalled",
    "lostSteps": "lost steps",
    "restartDelay": "restart delay",
}


def goodput_text(training: Mapping[str, Any] | None) -> str | None:
    """The share of the time that became steps, and where the rest went, the most first; None if it is unknown."""
    goodput = (training or {}).get("goodput")
    if not goodput:
        return None
    lost = lost_time_text(training)
    return f"{goodput['percent']:.1f} %{f' ({lost})' if lost else ''}"


def lost_time_text(training: Mapping[str, Any] | None) -> str:
    """Where the time went that did not become steps, the most first; empty if that is unknown."""
    seconds = ((training or {}).get("goodput") or {}).get("seconds") or {}
    total = sum(seconds.values())
    lost = sorted(((value, cause) for cause, value in seconds.items() if cause != "steps" and value), reverse=True)
    return ", ".join(f"{NAMES.get(cause, cause)} {100 * value / total:.1f} %" for value, cause in lost)


def slow_rank_text(training: Mapping[str, Any] | None) -> str | None:
    """The sentence about the slowest rank; None without one."""
    found = (training or {}).get("slowestRank")
    if not found:
        return None
    node = f", node {found['node']}" if found.get("node") else ""
    place = f" ({found['pod']}{node})" if found.get("pod") else ""
    section = f", most of it in its {found['section']}" if found.get("section") else ""
    return (
        f"rank {found['rank']}{place} needs {found['ratio']:.2f} times as long for a step as the median of the ranks, "
        f"without the exchange{section}"
    )
