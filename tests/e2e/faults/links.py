"""Faults of the node of the local cluster."""

from __future__ import annotations

import subprocess

from e2e.namespace import Namespace
from localcluster.settings import Cluster


def set_link(namespace: Namespace, local: Cluster, pod: str, state: str) -> None:
    """Sets the pod's end of the node's bridge down or up: every packet is dropped without an error."""
    number = namespace.exec(pod, "cat", "/sys/class/net/eth0/iflink").strip()
    inside = ["nsenter", f"--net={local.netns}", "--", "ip"]
    links = subprocess.run([*inside, "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    name = next(line.split()[1].partition("@")[0] for line in links if line.startswith(f"{number}:"))
    subprocess.run([*inside, "link", "set", name, state], check=True)
