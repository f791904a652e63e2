"""Mounts of this machine: what is mounted, bind mounts that containers share, and unmounting."""

import subprocess
from pathlib import Path

from localcluster.processes import run


def mount_points(below: Path | None = None) -> list[Path]:
    """All mount points, or those at and below a directory, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines]
    return sorted((point for point in points if below is None or point.is_relative_to(below)), reverse=True)


def is_mounted(path: Path) -> bool:
    """Whether something is mounted at `path`."""
    return path in mount_points()


def make_shared_mount(directory: Path) -> None:
    """Make `directory` a mount with shared propagation, so that containers see later mounts below it."""
    directory.mkdir(parents=True, exist_ok=True)
    if directory not in mount_points(directory):
        run("mount", "--bind", str(directory), str(directory))
    run("mount", "--make-rshared", str(directory))


def unmount_all(*directories: Path) -> None:
    """Unmount everything at and below `directories`. Raises ClusterError."""
    for directory in directories:
        if points := mount_points(directory):
            run("umount", "--lazy", *map(str, points))


def unmount_below(directory: Path) -> None:
    """Unmount what is mounted below `directory`, as far as possible."""
    for point in mount_points(directory):
        if point != directory:
            subprocess.run(["umount", "--lazy", str(point)], check=False)
