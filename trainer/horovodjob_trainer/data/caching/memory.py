"""The memory that this process may use for examples."""

from pathlib import Path

SHARE = 0.5  # of the free memory; the rest is for the model, TensorFlow and buffers
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
OWN_CGROUP = Path("/proc/self/cgroup")
# cgroup v2 and v1: limit, usage, statistics, and the name of the reclaimable page cache in the statistics
CGROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def budget_bytes(local_ranks: int, *, cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Memory in bytes that each of `local_ranks` processes on this node may use for examples.

    It is a share of the free memory, and thus of the limit of the container or, without a limit, of the machine.
    """
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


def limit_text(*, cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> str:
    """The limit of the container or, if it is not lower, the memory of the machine."""
    total = _entry(meminfo, "MemTotal:", 1024) or 0
    limits = [limit for limit, _ in _container_bytes(cgroup) if limit < total]
    return (
        f"the limit of the container is {format_bytes(min(limits))}"
        if limits
        else (f"the machine has {format_bytes(total)}, and the container has no lower limit")
    )


def _container_free_bytes(cgroup: Path) -> list[int]:
    return [max(0, limit - used) for limit, used in _container_bytes(cgroup)]


def _container_bytes(cgroup: Path) -> list[tuple[int, int]]:
    """Limit and use, without reclaimable memory, of each control group of this process that has a limit."""
    found = []
    for directory in _control_groups(cgroup):
        for limit_file, use_file, statistics, reclaimable in CGROUP_FILES:
            try:
                limit, use = int((directory / limit_file).read_text()), int((directory / use_file).read_text())
            except (OSError, ValueError):  # the other version, or the limit is "max"
                continue
            found.append((limit, use - (_entry(directory / statistics, reclaimable, 1) or 0)))
    return found


def _control_groups(cgroup: Path) -> list[Path]:
    """The root, which is the container's own in a container, and the groups of version 2 below it, outside of one."""
    try:
        lines = OWN_CGROUP.read_text().splitlines()
    except OSError:
        return [cgroup]
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    return [cgroup, *(cgroup.joinpath(*own.split("/")[:depth]) for depth in range(1, len(own.split("/")) + 1) if own)]


def _entry(path: Path, name: str, unit: int) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * unit for line in lines if line.split()[:1] == [name]), None)
