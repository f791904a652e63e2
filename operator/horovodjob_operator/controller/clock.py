"""The only module that reads the clock; elsewhere the time is an argument."""

from datetime import UTC, datetime


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)
