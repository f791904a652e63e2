"""The cache of binaries, which are built from pinned Go modules once for each state of their sources."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from localcluster.binaries import kubernetes
from localcluster.binaries.static_image import write_static_image
from localcluster.binaries.toolchain import Go, go, locked
from localcluster.binaries.versions import Group, check_pins, versions
from localcluster.progress import Progress

IMAGES = {"pause": "registry.k8s.io/pause", "coredns": "registry.k8s.io/coredns/coredns"}
# The group that tests without a node need. It is built first, so that these tests start before the others are built.
CONTROL_PLANE = "control-plane"
# The groups that a cluster runs; the others are for tests and users.
CLUSTER = (CONTROL_PLANE, "node", "containerd", "azure-files")

# With what the binaries run. Go's garbage collector runs less often: memory is less scarce than processor time.
GO_ENVIRONMENT = {"GOGC": "400"}


class Binaries:
    """The binaries in one cache directory."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.versions = versions()
        self._other_kubernetes = kubernetes.selected(self.versions)
        self._directories = {
            binary: self._directory(group) for group in self.versions.groups for binary in group.binaries
        }

    def path(self, binary: str) -> Path:
        """The path of a binary."""
        if self._other_kubernetes and binary in kubernetes.PROGRAMS:
            return kubernetes.directory(self.cache, self._other_kubernetes) / binary
        return self._directories[binary] / binary

    @property
    def kubernetes(self) -> str:
        """The version of the API server."""
        return self._other_kubernetes or self.versions.of("kubernetes")

    def file(self, binary: str, name: str) -> Path:
        """The path of a file of `Group.files`, which is stored beside `binary`."""
        return self._directories[binary] / name

    def image(self, name: str) -> Path:
        """The archive of the image that contains the static binary `name`."""
        return self._directories[name] / f"{name}.tar"

    def image_reference(self, name: str) -> str:
        """The name of the image that contains the static binary `name`."""
        return f"{IMAGES[name]}:{self.versions.of(name)}"

    @property
    def search_path(self) -> str:
        """PATH for components, which call runc, the shim, mount, nft and iptables."""
        own = dict.fromkeys(str(directory) for directory in self._directories.values())
        return ":".join([*own, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])

    def missing(self, names: tuple[str, ...] = ()) -> tuple[Group, ...]:
        """The groups that are not built, of those that `Versions.select` returns for these names."""
        return tuple(group for group in self.versions.select(names) if not self._directory(group).exists())

    def download(self, progress: Progress, names: tuple[str, ...] = ()) -> None:
        """Download the modules of missing groups. Raises ClusterError."""
        if missing := self.missing(names):
            began = time.monotonic()
            go(self.cache, self.versions, progress).download(missing, progress)
            progress.step(f"fetched the modules of {len(missing)} groups in {time.monotonic() - began:.0f} s")

    def ensure(self, progress: Progress, names: tuple[str, ...] = ()) -> None:
        """Build missing groups, one at a time, because each build uses all processors. Raises ClusterError."""
        self.download(progress, names)
        for group in self.missing(names):
            with locked(self.cache / "binaries" / f".{group.name}.lock", progress):
                if not self._directory(group).exists():  # another process may have built it
                    self._build(group, go(self.cache, self.versions, progress), progress)
        self._link()
        if self._other_kubernetes:
            self._ensure_other_kubernetes(progress, names)

    def _ensure_other_kubernetes(self, progress: Progress, names: tuple[str, ...]) -> None:
        """Build the missing programs of the other version, of those that are named, or that the named groups have."""
        groups = [group for group in self.versions.groups if not names or group.name in names]
        wanted = {*names, *(binary for group in groups for binary in group.binaries)}
        if kubernetes.missing(self.cache, self._other_kubernetes, wanted):
            command = go(self.cache, self.versions, progress)
            kubernetes.build(command, self._other_kubernetes, wanted, progress)

    def _directory(self, group: Group) -> Path:
        return self.cache / "binaries" / group.key

    def _build(self, group: Group, command: Go, progress: Progress) -> None:
        check_pins(group.components)
        target = self._directory(group)
        for abandoned in target.parent.glob(f".{group.name}-*"):  # of interrupted builds; this process holds the lock
            shutil.rmtree(abandoned)
        began, used = time.monotonic(), os.times()
        progress.step(f"building {group.name}: {', '.join(group.binaries)}")
        with tempfile.TemporaryDirectory(prefix=f".{group.name}-", dir=target.parent) as scratch:
            output = Path(scratch) / "output"
            output.mkdir(mode=0o755)
            command.build(group, output, progress)
            self._add_images(group, output)
            for file in group.files:
                copy(next(path for path in command.files(group, file) if path.exists()), output)
            output.rename(target)  # last, so that an interrupted build leaves no incomplete group
        now = os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        progress.step(f"built {group.name} in {time.monotonic() - began:.0f} s ({cpu:.0f} s of processor time)")

    def _add_images(self, group: Group, output: Path) -> None:
        for name in set(group.binaries) & set(IMAGES):
            write_static_image(output / name, self.image_reference(name), output / f"{name}.tar")

    def _link(self) -> None:
        """Link the current binaries in `bin/` of the cache."""
        links = self.cache / "bin"
        links.mkdir(parents=True, exist_ok=True)
        for binary in self._directories:
            link, target = links / binary, self._directories[binary] / binary
            if not target.exists() or (link.is_symlink() and link.readlink() == target):
                continue
            fresh = links / f".{binary}.{os.getpid()}"
            fresh.symlink_to(target)
            fresh.rename(link)


def copy(source: Path, directory: Path) -> None:
    """Copy a file, or a directory with all that it contains, out of Go's cache of modules, which is read-only."""
    target = directory / source.name
    if source.is_dir():
        target.mkdir()
        for part in source.iterdir():
            copy(part, target)
    else:
        shutil.copyfile(source, target)
