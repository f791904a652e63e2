"""When a job is reconciled again without an event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Requeue:
    """The result of a reconciliation, or of a part of it."""

    at: datetime | None = None
    """The latest time of the next reconciliation; it is in the future."""
    is_soon: bool = False
    """This reconciliation changed something that the next one must see; a rate limit delays it."""

    def __or__(self, other: Requeue) -> Requeue:
        """The earlier of both."""
        at = min((time for time in (self.at, other.at) if time), default=None)
        return Requeue(at, self.is_soon or other.is_soon)
