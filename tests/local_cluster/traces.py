"""What the scratch cluster has left on this machine."""

import re
import subprocess
from pathlib import Path

from local_cluster.scratch import CLUSTER

CGROUP_ROOTS = ("", "*/")
CNI = Path("/var/lib/cni")
RESERVED = CLUSTER.run / "cni-addresses"


def output(*arguments: str) -> list[str]:
    return sorted(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines())


def processes_of_the_cluster() -> list[str]:
    """Command lines that name one of the cluster's directories, and whatever runs in its namespace."""
    directories = (str(CLUSTER.run) + "/", str(CLUSTER.state) + "/")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if any(directory in line for directory in directories):
            found.append(line)
    return sorted(found)


def is_a_log_of_the_cluster(link: Path) -> bool:
    try:
        return str(CLUSTER.state) in str(link.readlink())
    except FileNotFoundError:  # another cluster's pods come and go
        return False


def traces() -> dict[str, list[str]]:
    """Everything of the cluster that somebody could stumble over on this machine."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": processes_of_the_cluster(),
        "mounts": [line for line in mounts if f"{CLUSTER.run}/" in line or f"{CLUSTER.state}/" in line],
        "interfaces": [line for line in output("ip", "-brief", "link") if CLUSTER.interface in line],
        "routes": [line for line in output("ip", "route") if f"10.{80 + 16 * CLUSTER.slot + 8}." in line],
        "packet filter": [line for line in output("nft", "list", "ruleset") if re.search("KUBE|kube-|policy", line)],
        "cgroups": [
            str(path) for root in CGROUP_ROOTS for path in Path("/sys/fs/cgroup").glob(root + CLUSTER.interface)
        ],
        "run directory": [str(path) for path in CLUSTER.run.parent.glob(f"{CLUSTER.name}*")],
        "addresses of pods": [str(path) for path in (*CNI.rglob(f"{CLUSTER.interface}*"), *RESERVED.rglob("*.*.*.*"))],
        "links to logs": [str(link) for link in Path("/var/log/containers").glob("*") if is_a_log_of_the_cluster(link)],
    }
