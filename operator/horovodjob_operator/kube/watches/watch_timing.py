"""Timing of watches: when a silent watch is broken, and when a failed one is tried again."""

from horovodjob_operator.kube.requests.retry_delay import retry_delay_seconds

# The API server sends a bookmark every minute and ends a watch at its timeout. A watch that is silent for longer has
# lost its connection without an error.
BOOKMARK_SECONDS, TIMEOUT_TOLERANCE_SECONDS = 70, 5


def silence_seconds(timeout_seconds: int) -> int:
    """How long a watch with this timeout can be silent."""
    return min(BOOKMARK_SECONDS, timeout_seconds + TIMEOUT_TOLERANCE_SECONDS)


def watch_retry_seconds(failures: int) -> float:
    """Seconds until a list or watch is tried again after a number of failures in a row."""
    return retry_delay_seconds(failures, first=0.2, jitter=0.5)
