"""What a node changes outside its own directories on the machine, and how that is undone."""

import contextlib
import json
import shutil
from pathlib import Path

from localcluster.network.namespace import mount_points, run
from localcluster.settings import RUN_ROOT, Cluster

RECORD = RUN_ROOT / "host.json"
# Kernel parameters that are raised to these values. Watches of many pods need the first. As to the second: where ids of
# processes come round within minutes, a signal to a process that has just ended may hit another one.
LEAST = {"fs/inotify/max_user_instances": 1024, "kernel/pid_max": 4_194_304}
# The kubelet sets the others.
PARAMETERS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    *LEAST,
)
# Paths that the kubelet, containerd and CNI have compiled in, whatever their configuration says.
COMPILED_IN = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/containers",
    "/run/containerd",
    "/opt/containerd",
)
CNI_RESULTS = Path("/var/lib/cni/results")


def prepare_host() -> None:
    """Remember how this machine was before its first cluster."""
    if not RECORD.exists():
        parameters = {name: (Path("/proc/sys") / name).read_text().strip() for name in PARAMETERS}
        absent = [path for path in COMPILED_IN if not Path(path).exists()]
        fresh = RECORD.with_suffix(".fresh")
        fresh.write_text(json.dumps({"parameters": parameters, "absent": absent}))
        fresh.rename(RECORD)
    for name, least in LEAST.items():
        path = Path("/proc/sys") / name
        if int(path.read_text()) < least:
            path.write_text(str(least))


def restore_host() -> None:
    """Undo what the clusters changed on this machine, after the last one has stopped."""
    if not RECORD.exists():
        return
    before = json.loads(RECORD.read_text())
    for name, value in before["parameters"].items():
        path = Path("/proc/sys") / name
        if path.read_text().strip() != value:
            path.write_text(value)
    for path in map(Path, before["absent"]):
        if not mount_points(path):
            shutil.rmtree(path, ignore_errors=True)
    RECORD.unlink()


def make_shared_mount(directory: Path) -> None:
    """Make `directory` a mount of its own, whose mounts containers can see appear."""
    directory.mkdir(parents=True, exist_ok=True)
    if directory not in mount_points(directory):
        run("mount", "--bind", str(directory), str(directory))
    run("mount", "--make-rshared", str(directory))


def unmount_all(*directories: Path) -> None:
    """Unmount everything at and below `directories`."""
    for directory in directories:
        if points := mount_points(directory):
            run("umount", "--lazy", *map(str, points))


def remove_runtime_traces(cluster: Cluster) -> None:
    """Remove this cluster's entries from directories that it may share with other container runtimes."""
    for result in CNI_RESULTS.glob(f"{cluster.interface}-*"):
        result.unlink()
    remove_links_to_logs(cluster.log)
    for directory in (cluster.run, *cluster.run.glob("nodes/*")):
        remove_shim_sockets(directory)


def remove_links_to_logs(directory: Path) -> None:
    """Remove what a kubelet has made for those who look for logs of containers where Docker had them."""
    for link in Path("/var/log/containers").glob("*.log"):
        if link.is_symlink() and link.readlink().is_relative_to(directory):
            link.unlink()


def remove_shim_sockets(directory: Path) -> None:
    """Remove the sockets, all in one directory of the machine, of a containerd's shims that have ended."""
    for bundle in bundles(directory):
        for socket in shim_sockets(bundle):
            socket.unlink(missing_ok=True)


def bundles(directory: Path) -> list[Path]:
    """The directory, named by its id, of each running container of the containerd in a node's run directory."""
    return list((directory / "containerd").glob("io.containerd.runtime.v2.task/*/*"))


def shim_sockets(bundle: Path) -> list[Path]:
    """The sockets of the shim that runs the container in `bundle`."""
    found: list[Path] = []
    with contextlib.suppress(OSError, ValueError):
        address = json.loads((bundle / "bootstrap.json").read_text()).get("address", "")
        found.append(Path(address.removeprefix("unix://")))
    return [path for path in found if path.is_relative_to("/run/containerd")]
