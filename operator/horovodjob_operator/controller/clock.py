"""The only place that reads the clock: elsewhere the time is an argument."""

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment, UTC."""
    return datetime.now(UTC)
