"""Checks that this machine can run a cluster, and installs missing Debian packages."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from localcluster.binaries.cache import Binaries
from localcluster.errors import MachineError
from localcluster.machine.cgroups import missing_controllers
from localcluster.progress import Progress
from localcluster.settings import Cluster

GIB = 1024**3
MEMORY_GIB = 7  # for two pods with TensorFlow, or a compilation of Horovod; machines of 8 GiB have a little less
DISK_GIB_TO_BUILD = 16  # sources, compiled packages, binaries and images
DISK_GIB_TO_RUN = 4
APT_LOCK = ("-o", "DPkg::Lock::Timeout=600")


def check_machine(cluster: Cluster, progress: Progress) -> None:
    """Install missing packages. Raises MachineError with one sentence for each other missing requirement."""
    if os.geteuid() != 0:
        raise MachineError("a cluster needs root: it makes network namespaces, mounts and cgroups")
    install_packages(Binaries(cluster.cache).versions.debian_packages, progress)
    if missing := [sentence for check in CHECKS if (sentence := check(cluster))]:
        raise MachineError("\n       ".join(missing))


def install_packages(wanted: tuple[str, ...], progress: Progress) -> None:
    """Install packages that are missing; updates the package lists only if that fails. Raises MachineError."""
    missing = missing_packages(wanted)
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise MachineError(f"this machine lacks {', '.join(missing)}, and has no apt-get to install them with")
    progress.step(f"installing {' '.join(missing)}")
    install = ("install", "--yes", "--no-install-recommends", *missing)
    if apt_get(*install).returncode:
        progress.step("updating the package lists")
        apt_get("update")
        done = apt_get(*install)
        if done.returncode:
            raise MachineError(f"{' '.join(missing)} cannot be installed: {done.stderr.strip().splitlines()[-1]}")


def apt_get(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run apt-get, which waits for another process that holds its lock."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", *APT_LOCK, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def missing_packages(wanted: tuple[str, ...]) -> list[str]:
    """The packages that are not installed."""
    if shutil.which("dpkg-query") is None:
        return list(wanted)
    command = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *wanted]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [package for package in wanted if f"{package} installed" not in lines]


def check_disk(cluster: Cluster) -> str:
    """A sentence if the disk of the cache has too little free space."""
    wanted = DISK_GIB_TO_BUILD if Binaries(cluster.cache).missing() else DISK_GIB_TO_RUN
    existing = next(path for path in (cluster.cache, *cluster.cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free / GIB
    return f"{existing} has {free:.1f} GiB free; {wanted} GiB are needed" if free < wanted else ""


def check_memory(_: Cluster) -> str:
    """A sentence if this machine has too little memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return f"this machine has {total:.1f} GiB of memory; {MEMORY_GIB} GiB are needed" if total < MEMORY_GIB else ""


def check_cgroups(_: Cluster) -> str:
    """A sentence if cgroup controllers are missing."""
    try:
        missing = missing_controllers()
    except OSError as error:
        return f"cgroups are not usable here: {error}"
    return f"the cgroup controllers {', '.join(missing)} are not mounted" if missing else ""


def check_overlay(_: Cluster) -> str:
    """A sentence if overlayfs is missing, also after its kernel module is loaded."""
    if not has_filesystem("overlay"):
        subprocess.run(["modprobe", "overlay"], capture_output=True, check=False) if shutil.which("modprobe") else None
    return "" if has_filesystem("overlay") else "the kernel lacks overlayfs, which container images need"


def has_filesystem(name: str) -> bool:
    """Whether the kernel has a file system."""
    return name in Path("/proc/filesystems").read_text().split()


def probe(commands: str, sentence: str) -> Callable[[Cluster], str]:
    """A check that runs shell commands in a temporary network namespace; returns `sentence` if they fail."""

    def check(_: Cluster) -> str:
        done = subprocess.run(["unshare", "--net", "sh", "-ec", commands], capture_output=True, text=True, check=False)
        return f"{sentence} ({done.stderr.strip()})" if done.returncode else ""

    return check


CHECKS: tuple[Callable[[Cluster], str], ...] = (
    check_disk,
    check_memory,
    check_cgroups,
    check_overlay,
    probe("true", "network namespaces cannot be made here"),
    probe("ip link add name v0 type veth peer name v1", "the kernel lacks veth interfaces"),
    probe("ip link add name br0 type bridge", "the kernel lacks network bridges"),
    probe(
        "test -e /proc/sys/net/bridge/bridge-nf-call-iptables || modprobe br_netfilter",
        "the kernel lacks br_netfilter",
    ),
    probe(
        "nft add table ip t && nft 'add chain ip t c { type nat hook prerouting priority 0 ; }' "
        "&& nft 'add rule ip t c fib daddr type local dnat to 127.0.0.1'",
        "the kernel lacks nftables with address translation, which kube-proxy needs",
    ),
    probe("iptables -t nat -A PREROUTING -p tcp --dport 1 -j DNAT --to 127.0.0.1", "iptables does not work here"),
)
