"""Mounts of volumes in containers."""

from typing import Any


def volume_mount(name: str, path: str, *, read_only: bool = False) -> dict[str, Any]:
    """Where a volume appears in a container."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
