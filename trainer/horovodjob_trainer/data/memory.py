"""The memory that this process may use for examples."""

from pathlib import Path

SHARE = 0.5  # of the free memory; the rest is for the model, TensorFlow and buffers
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
# cgroup v2 and v1: limit, usage, statistics, and the name of the reclaimable page cache in the statistics
CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def budget_bytes(local_ranks: int, *, cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Memory in bytes that each of `local_ranks` processes on this node may use for examples."""
    free = [
        bytes_free
        for bytes_free in (_machine_free_bytes(meminfo), *_container_free_bytes(cgroup))
        if bytes_free is not None
    ]
    return int(SHARE * min(free, default=0) / local_ranks)


def format_bytes(size: float) -> str:
    """A number of bytes in MB or GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _machine_free_bytes(meminfo: Path) -> int | None:
    return _entry(meminfo, "MemAvailable:", 1024)


def _container_free_bytes(cgroup: Path) -> list[int]:
    found = []
    for limit_file, use_file, statistics, reclaimable in CGROUP_FILES:
        try:
            limit, use = int((cgroup / limit_file).read_text()), int((cgroup / use_file).read_text())
        except (OSError, ValueError):  # the other version, or the limit is "max"
            continue
        found.append(max(0, limit - use + (_entry(cgroup / statistics, reclaimable, 1) or 0)))
    return found


def _entry(path: Path, name: str, unit: int) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * unit for line in lines if line.split()[:1] == [name]), None)
