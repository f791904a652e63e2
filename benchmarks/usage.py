"""What a process of this machine has used so far."""

import os
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """Processor time, of user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Resident memory."""
    return _status_mb(pid, "VmRSS")


def peak_memory_mb(pid: int) -> float:
    """The most resident memory that it has had."""
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / 1e6
