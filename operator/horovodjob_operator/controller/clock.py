"""The only module that reads the time of day; elsewhere it is an argument. Durations have the monotonic clock."""

from datetime import UTC, datetime


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)
