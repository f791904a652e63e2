"""buildah with a storage of its own, and the commands that it and the base image need."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from localcluster.machine.mounts import unmount_below
from localcluster.settings import cache_directory

CACHE = cache_directory()
IMAGES = CACHE / "images"
SUITE = "bookworm"

# Programs, and the packages of the same names that contain them.
TOOLS = ("buildah", "debootstrap")
# Caches of the Dockerfile: horovodjob-NAME.
SHARED_CACHES = ("uv", "horovod")
CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
# Below this free space, the layers of earlier builds are removed.
MINIMUM_FREE_BYTES = 12 * 1024**3
# Files that a build leaves in the folder of images if it is killed.
LEFTOVERS = ("tmp/buildah[0-9]*", "*.partial", "context-*", "rootfs-*")
STARTED = time.monotonic()


class ImageError(Exception):
    """An image cannot be built; the message contains the cause."""


def log_progress(message: str) -> None:
    """Print a line with the seconds since the start, on standard error: standard output is for results."""
    print(f"images {time.monotonic() - STARTED:6.1f}s  {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def builder_lock() -> Iterator[None]:
    """Hold the lock of the cache, so that other builds wait.

    The commands of this build inherit the lock. If this process is killed, the lock is released when they have ended.
    """
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (IMAGES / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log_progress("another build is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)
        yield


def run_logged(command: list[str], log: Path, *, env: dict[str, str] | None = None, shown: str = "") -> None:
    """Run a command with its output in `log`; print lines that match `shown`, but not steps from the cache.

    Raises ImageError with the end of the log if it fails.
    """
    with (
        log.open("a") as file,
        subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            close_fds=False,
        ) as process,
    ):
        try:
            step = ""
            for line in process.stdout or ():
                file.write(line)
                if step and not line.startswith("--> Using cache"):
                    log_progress(f"  {step[:100]}")
                step = " ".join(line.split()) if shown and re.search(shown, line) else ""
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ImageError(f"{tail}\n\n`{command[0]}` ended with {process.returncode}; all output is in {log}")


def install_tools() -> None:
    """Install missing tools of the builder from the distribution. Raises ImageError."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=system_path())]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise ImageError(f"{' and '.join(missing)} must be installed: this machine has no apt-get")
    log_progress(f"installing {' '.join(missing)}")
    log = new_log("tools")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(ImageError):  # another source may be unreachable
        run_logged(["apt-get", "update"], log, env=environment)
    options = ["-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"]
    run_logged(["apt-get", "install", *options, "debian-archive-keyring", *missing], log, env=environment)


def system_path() -> str:
    """PATH with the directories of debootstrap and its tools, which the PATH of a user may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def new_log(name: str) -> Path:
    """Create an empty log file."""
    path = IMAGES / "logs" / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


class Buildah:
    """buildah with a storage of its own, separate from other images on this machine."""

    def __init__(self) -> None:
        self.storage = IMAGES / "storage"
        policy = IMAGES / "policy.json"
        self.signatures = ["--signature-policy", str(policy)]
        self.scratch = IMAGES / "tmp"
        self.mounted = IMAGES / "mnt"
        for folder in (self.scratch / "buildah-cache", self.mounted, *(CACHE / name for name in SHARED_CACHES)):
            folder.mkdir(parents=True, exist_ok=True)
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
        # The state of mounts must not survive a restart of the machine, and each cache has its own.
        state = Path("/run/horovodjob-images") / hashlib.sha256(str(IMAGES).encode()).hexdigest()[:12]
        driver = os.environ.get("STORAGE_DRIVER", "overlay")
        self.command = ["buildah", "--root", str(self.storage), "--runroot", str(state)]
        self.command += ["--storage-driver", driver]
        self.env = {**os.environ, "TMPDIR": str(self.scratch), "PATH": system_path()}
        self.share_caches()
        self.copy_certificates()

    def share_caches(self) -> None:
        """Let builds use the packages and wheels on this machine: Horovod is compiled once for images and tests.

        Only if this machine has the same Debian: images cannot load what was compiled with a newer C library.
        """
        release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
        for name in SHARED_CACHES:
            link = self.scratch / "buildah-cache" / f"horovodjob-{name}"
            if f"VERSION_CODENAME={SUITE}" in release and not link.exists():
                link.symlink_to(CACHE / name)

    def copy_certificates(self) -> None:
        """Copy the CA bundle of this machine for builds, because a proxy may inspect TLS."""
        candidates = [os.environ.get("SSL_CERT_FILE", ""), *CA_BUNDLES]
        if bundle := next((name for name in candidates if name and Path(name).is_file()), None):
            shutil.copyfile(bundle, self.mounted / "ca.crt")

    def output(self, *arguments: str) -> str:
        """The standard output of a short command. Raises ImageError if it fails."""
        command = [*self.command, *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ImageError(f"buildah {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def repair(self) -> None:
        """Remove what an interrupted build has left; create a new storage if this one is damaged."""
        # buildah records the network helper of its first run, and fails without it. Builds use the network of the host.
        (self.storage / "defaultNetworkBackend").unlink(missing_ok=True)
        try:
            self.output("rm", "--all")
            self.output("images", "--quiet")
        except ImageError as error:
            log_progress(f"the image storage is damaged, starting a new one ({error})")
            unmount_below(self.storage)
            shutil.rmtree(self.storage, ignore_errors=True)
        if shutil.disk_usage(IMAGES).free < MINIMUM_FREE_BYTES:
            log_progress("the disk is nearly full: removing the layers of earlier builds")
            self.output("rmi", "--all", "--force")
        for leftover in [path for pattern in LEFTOVERS for path in IMAGES.glob(pattern)]:
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Whether the storage has an image with this name."""
        listed = json.loads(self.output("images", "--json") or "[]")
        return any(name in (entry.get("names") or ()) for entry in listed or ())

    def build(self, name: str, context: Path, log: Path, *options: str) -> None:
        """Build an image and print its steps. It contains no time, so the same files have the same digest."""
        fixed = ["--isolation", "chroot", "--network", "host", "--layers", "--timestamp", "0", "--identity-label=false"]
        run_logged(
            [*self.command, "build", *fixed, *options, "--tag", name, str(context)],
            log,
            env=self.env,
            shown=r"STEP \d+/\d+: (RUN|COPY|ADD)|^ +(Building|Built) |^check: ",
        )

    def export(self, name: str, archive: Path) -> None:
        """Write an image to an archive, which gets its name when it is complete."""
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        run_logged(
            [*self.command, "push", *self.signatures, name, f"docker-archive:{partial}:{name}"],
            new_log(f"export-{archive.stem.split('-')[0]}"),
            env=self.env,
        )
        partial.replace(archive)
