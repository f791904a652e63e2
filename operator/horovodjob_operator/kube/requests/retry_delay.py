"""Exponential delay between retries."""

import random


def retry_delay_seconds(retries: int, *, first: float, longest: float = 30.0, jitter: float = 0.0) -> float:
    """Seconds until the next retry: twice as long after each retry, reduced at random by at most the share `jitter`."""
    return min(longest, first * 2.0 ** min(retries, 10)) * random.uniform(1 - jitter, 1)
