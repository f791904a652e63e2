"""API calls, counted in the API server's audit log, and the budget for those that a job costs."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def budget(workers: int, *, is_queued: bool = False) -> dict[str, int]:
    """Calls that a job of so many workers may cost, if it starts quickly, or as soon as its queue lets it."""
    # It waits: a status write and an event more.
    # Its Workload is created, reported ready, and finished.
    waits = {"create workloads": 1, "patch workloads/status": 2} if is_queued else {}
    return waits | {
        "create pods": workers + 1,
        "create secrets": 1,
        "create networkpolicies": 1,
        "patch pods": 1,
        "deletecollection pods": 1,
        "patch horovodjobs/status": 2 + is_queued,
        "create events": 2 + is_queued,
    }


def requested(event: dict[str, Any]) -> str:
    """Verb and resource of an audit event."""
    reference = event.get("objectRef", {})
    sub = reference.get("subresource")
    return f"{event['verb']} {reference.get('resource', '?')}{f'/{sub}' if sub else ''}"


def answered(log: Path, agent: str, since: str) -> Iterator[dict[str, Any]]:
    """Requests of a user agent that were received since then (RFC 3339, UTC), also those in logs that were rotated."""
    mark = f'"userAgent":"{agent}'.encode()
    for file in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        with file.open("rb") as lines:
            for line in lines:
                if mark not in line or not line.endswith(b"\n"):
                    continue
                event: dict[str, Any] = json.loads(line)
                if event["stage"] == "ResponseComplete" and event["requestReceivedTimestamp"] >= since:
                    yield event


def calls(log: Path, agent: str, since: str) -> Counter[str]:
    """How often each of them was asked."""
    return Counter(requested(event) for event in answered(log, agent, since))
