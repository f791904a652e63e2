"""Durations in the three formats of Batch AI's interfaces."""

import math
import re

# `7.00:00:00`, the service's own (.NET), and `7 days, 0:00:00`, which `az batchai job show` printed (Python).
CLOCK = re.compile(
    r"(?:(?P<days>\d{1,6})(?:\.|\s+days?,\s*))?(?P<hours>\d{1,6}):(?P<minutes>\d\d?):(?P<seconds>\d\d?(?:\.\d+)?)",
    re.ASCII,
)
DAYS = re.compile(r"(?P<days>\d{1,6})\s+days?", re.ASCII)
ISO_8601 = re.compile(
    r"P(?=.)(?:(?P<weeks>\d{1,6})W)?(?:(?P<days>\d{1,6}(?:\.\d+)?)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d{1,9}(?:\.\d+)?)H)?(?:(?P<minutes>\d{1,9}(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d{1,12}(?:\.\d+)?)S)?)?",
    re.IGNORECASE | re.ASCII,
)
UNITS = {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


def duration_seconds(text: str) -> int:
    """Seconds, rounded up. Raises ValueError for any other form; months and years have no fixed length."""
    for pattern in (ISO_8601, CLOCK, DAYS):
        if match := pattern.fullmatch(text.strip()):
            parts = match.groupdict()
            return math.ceil(sum(float(parts[unit]) * size for unit, size in UNITS.items() if parts.get(unit)))
    raise ValueError("write it as P7D or PT1H30M, as 7.00:00:00, or as '7 days, 0:00:00'")
