"""Faults of the network of the local cluster."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from e2e.namespace import Namespace
from localcluster.settings import Cluster


def set_link(namespace: Namespace, local: Cluster, pod: str, state: str) -> None:
    """Sets the pod's end of the node's bridge down or up: every packet is dropped without an error."""
    number = namespace.exec(pod, "cat", "/sys/class/net/eth0/iflink").strip()
    inside = ["nsenter", f"--net={local.netns}", "--", "ip"]
    links = subprocess.run([*inside, "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    name = next(line.split()[1].partition("@")[0] for line in links if line.startswith(f"{number}:"))
    subprocess.run([*inside, "link", "set", name, state], check=True)


@contextlib.contextmanager
def parted(namespace: Namespace, local: Cluster, one: str, other: str) -> Iterator[None]:
    """The network drops all packets between two pods, without a reset."""
    addresses = [namespace.pods()[pod]["status"]["podIP"] for pod in (one, other)]
    pair = f"{{ {', '.join(addresses)} }}"
    table = f"ip {namespace.name}"
    inside = ["nsenter", f"--net={local.netns}", "--", "nft"]
    rules = f"""
    add table {table}
    add chain {table} forward {{ type filter hook forward priority -10; }}
    add rule {table} forward ip saddr {pair} ip daddr {pair} drop
    """
    subprocess.run([*inside, "-f", "-"], input=rules, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "delete", "table", *table.split()], check=True)
