"""What this machine must have: each missing thing in one sentence; Debian packages are installed."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from localcluster.binaries.cache import Binaries
from localcluster.errors import MachineUnfit
from localcluster.machine.cgroups import missing_controllers
from localcluster.progress import Progress
from localcluster.settings import Cluster

GIB = 1024**3
MEMORY_GIB = 7  # compiling Horovod and TensorFlow in two pods; machines sold with 8 GiB have a little less
DISK_GIB_TO_BUILD = 16  # sources, compiled packages, binaries and images of everything
DISK_GIB_TO_RUN = 4
APT_LOCK = ("-o", "DPkg::Lock::Timeout=600")


def check_machine(cluster: Cluster, progress: Progress) -> None:
    """Raise with one sentence for each thing that is missing."""
    if os.geteuid() != 0:
        raise MachineUnfit("a cluster needs root: it makes network namespaces, mounts and cgroups")
    install_packages(Binaries(cluster.cache).versions.debian_packages, progress)
    if lacks := [sentence for check in CHECKS if (sentence := check(cluster))]:
        raise MachineUnfit("\n       ".join(lacks))


def install_packages(wanted: tuple[str, ...], progress: Progress) -> None:
    """Install what is missing of `wanted`; `apt-get update` only if the lists do not suffice."""
    missing = missing_packages(wanted)
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise MachineUnfit(f"this machine lacks {', '.join(missing)}, and has no apt-get to install them with")
    progress.step(f"installing {' '.join(missing)}")
    install = ("install", "--yes", "--no-install-recommends", *missing)
    if apt_get(*install).returncode:
        progress.step("updating the package lists")
        apt_get("update")
        done = apt_get(*install)
        if done.returncode:
            raise MachineUnfit(f"{' '.join(missing)} cannot be installed: {done.stderr.strip().splitlines()[-1]}")


def apt_get(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", *APT_LOCK, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def missing_packages(wanted: tuple[str, ...]) -> list[str]:
    """Those of `wanted` that Debian does not have installed."""
    if shutil.which("dpkg-query") is None:
        return list(wanted)
    command = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *wanted]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [package for package in wanted if f"{package} installed" not in lines]


def disk_is_short(cluster: Cluster) -> str:
    wanted = DISK_GIB_TO_BUILD if Binaries(cluster.cache).missing() else DISK_GIB_TO_RUN
    existing = next(path for path in (cluster.cache, *cluster.cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free / GIB
    return f"{existing} has {free:.1f} GiB free; {wanted} GiB are needed" if free < wanted else ""


def memory_is_short(_: Cluster) -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return f"this machine has {total:.1f} GiB of memory; {MEMORY_GIB} GiB are needed" if total < MEMORY_GIB else ""


def cgroups_are_missing(_: Cluster) -> str:
    try:
        missing = missing_controllers()
    except OSError as error:
        return f"cgroups are not usable here: {error}"
    return f"the cgroup controllers {', '.join(missing)} are not mounted" if missing else ""


def overlay_is_missing(_: Cluster) -> str:
    if not has_filesystem("overlay"):
        subprocess.run(["modprobe", "overlay"], capture_output=True, check=False) if shutil.which("modprobe") else None
    return "" if has_filesystem("overlay") else "the kernel lacks overlayfs, which container images need"


def has_filesystem(name: str) -> bool:
    return name in Path("/proc/filesystems").read_text().split()


def probe(commands: str, sentence: str) -> Callable[[Cluster], str]:
    """A check that runs `commands` in a network namespace of its own, which vanishes with them."""

    def check(_: Cluster) -> str:
        done = subprocess.run(["unshare", "--net", "sh", "-ec", commands], capture_output=True, text=True, check=False)
        return f"{sentence} ({done.stderr.strip()})" if done.returncode else ""

    return check


CHECKS: tuple[Callable[[Cluster], str], ...] = (
    disk_is_short,
    memory_is_short,
    cgroups_are_missing,
    overlay_is_missing,
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
