"""What clusters change on this machine outside their own directories, and how `down` restores it."""

import json
import shutil
from pathlib import Path

from localcluster.machine.mounts import mount_points
from localcluster.settings import RUN_ROOT

RECORD = RUN_ROOT / "host.json"
# Minimum values of kernel parameters. Watches of many pods need the first. The second: if the kernel reuses process ids
# within minutes, a signal to a process that has just ended may reach another one.
MINIMUM = {"fs/inotify/max_user_instances": 1024, "kernel/pid_max": 4_194_304}
# The kernel parameters that clusters change; the kubelet sets those without a minimum.
PARAMETERS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    *MINIMUM,
)
# Directories that kubelet, containerd and CNI create whatever their configuration is.
FIXED_DIRECTORIES = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/log/containers",
    "/run/containerd",
    "/opt/containerd",
)


def prepare_host() -> None:
    """Record the state of this machine before its first cluster, and set kernel parameters to their minimum values."""
    if not RECORD.exists():
        parameters = {name: (Path("/proc/sys") / name).read_text().strip() for name in PARAMETERS}
        absent = [path for path in FIXED_DIRECTORIES if not Path(path).exists()]
        fresh = RECORD.with_suffix(".fresh")
        fresh.write_text(json.dumps({"parameters": parameters, "absent": absent}))
        fresh.rename(RECORD)
    for name, minimum in MINIMUM.items():
        path = Path("/proc/sys") / name
        if int(path.read_text()) < minimum:
            path.write_text(str(minimum))


def restore_host() -> None:
    """Restore the recorded state of this machine, after the last cluster has stopped."""
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
