"""buildah on a storage of its own, with the commands that it and the base image need."""

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

CACHE = Path(os.environ.get("HOROVODJOB_CACHE") or Path.home() / ".cache" / "horovodjob")
IMAGES = CACHE / "images"
SUITE = "bookworm"

# Programs, and the packages of the same names that have them.
TOOLS = ("buildah", "debootstrap")
CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
# Layers of earlier builds are kept, for speed, while the disk has more room than this.
SCARCE_BYTES = 12 * 1024**3
# What a build that was killed leaves in the folder of the images.
LEFT_OVERS = ("tmp/buildah[0-9]*", "*.partial", "context-*", "rootfs-*")
STARTED = time.monotonic()


class ImageError(Exception):
    """An image cannot be had; the message is for the person who asked for it."""


def say(message: str) -> None:
    """One line of progress, with the seconds since the start; standard output is for results."""
    print(f"images {time.monotonic() - STARTED:6.1f}s  {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def builder_lock() -> Iterator[None]:
    """Holds off other builds on this cache.

    The commands of this build inherit the lock: should this process be killed, it ends with the last of them.
    """
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (IMAGES / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)
        yield


def run_logged(command: list[str], log: Path, *, env: dict[str, str] | None = None, shown: str = "") -> None:
    """Runs a command with its output in `log`, and shows the lines that match `shown`, if work follows."""
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
                    say(f"  {step[:100]}")
                step = " ".join(line.split()) if shown and re.search(shown, line) else ""
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ImageError(f"{tail}\n\n`{command[0]}` ended with {process.returncode}; its whole output: {log}")


def install_tools() -> None:
    """Installs what is missing of the builder's tools from the distribution."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=system_path())]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise ImageError(f"{' and '.join(missing)} must be installed: there is no apt-get here to do it with")
    say(f"installing {' '.join(missing)}")
    log = new_log("tools")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(ImageError):  # a third-party source that is unreachable is no reason to stop
        run_logged(["apt-get", "update"], log, env=environment)
    options = ["-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"]
    run_logged(["apt-get", "install", *options, "debian-archive-keyring", *missing], log, env=environment)


def system_path() -> str:
    """PATH with the folders that debootstrap and its tools are in, which a user's may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def new_log(name: str) -> Path:
    """An empty log file."""
    path = IMAGES / "logs" / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


class Buildah:
    """buildah with a storage of its own, so that nobody else's images are seen or touched."""

    def __init__(self) -> None:
        self.storage = IMAGES / "storage"
        policy = IMAGES / "policy.json"
        self.signatures = ["--signature-policy", str(policy)]
        self.scratch = IMAGES / "tmp"
        self.mounted = IMAGES / "mnt"
        for folder in (self.scratch / "buildah-cache", self.mounted, CACHE / "uv"):
            folder.mkdir(parents=True, exist_ok=True)
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
        # State of mounts: it has to go with a restart of the machine, and to differ between caches.
        state = Path("/run/horovodjob-images") / hashlib.sha256(str(IMAGES).encode()).hexdigest()[:12]
        driver = os.environ.get("STORAGE_DRIVER", "overlay")
        self.command = ["buildah", "--root", str(self.storage), "--runroot", str(state)]
        self.command += ["--storage-driver", driver]
        self.env = {**os.environ, "TMPDIR": str(self.scratch), "PATH": system_path()}
        self.share_uv_cache()
        self.copy_certificates()

    def share_uv_cache(self) -> None:
        """Lets builds use uv's cache beside them: Horovod is then compiled once for images and tests.

        Only where this machine's C library is the images' own: a newer one makes what they cannot load.
        """
        link = self.scratch / "buildah-cache" / "horovodjob-uv"
        release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
        if f"VERSION_CODENAME={SUITE}" in release and not link.exists():
            link.symlink_to(CACHE / "uv")

    def copy_certificates(self) -> None:
        """Puts this machine's CA bundle where builds see it: the way out may inspect TLS."""
        candidates = [os.environ.get("SSL_CERT_FILE", ""), *CA_BUNDLES]
        if bundle := next((name for name in candidates if name and Path(name).is_file()), None):
            shutil.copyfile(bundle, self.mounted / "ca.crt")

    def output(self, *arguments: str) -> str:
        """What a quick command prints."""
        command = [*self.command, *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ImageError(f"buildah {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def heal(self) -> None:
        """Removes what a build that was killed left behind."""
        # buildah remembers the network helper of its first run and fails without it; builds use the host's network.
        (self.storage / "defaultNetworkBackend").unlink(missing_ok=True)
        try:
            self.output("rm", "--all")
            self.output("images", "--quiet")
        except ImageError as error:
            say(f"the image storage is damaged, starting a new one ({error})")
            unmount_below(self.storage)
            shutil.rmtree(self.storage, ignore_errors=True)
        if shutil.disk_usage(IMAGES).free < SCARCE_BYTES:
            say("the disk is nearly full: giving up the layers of earlier builds")
            self.output("rmi", "--all", "--force")
        for left_over in [path for pattern in LEFT_OVERS for path in IMAGES.glob(pattern)]:
            if left_over.is_dir():
                shutil.rmtree(left_over, ignore_errors=True)
            else:
                left_over.unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Whether the storage has an image of this name."""
        listed = json.loads(self.output("images", "--json") or "[]")
        return any(name in (entry.get("names") or ()) for entry in listed or ())

    def build(self, name: str, context: Path, log: Path, *options: str) -> None:
        """Builds an image, showing its steps. No time gets into it: same files, same digest."""
        fixed = ["--isolation", "chroot", "--network", "host", "--layers", "--timestamp", "0", "--identity-label=false"]
        run_logged(
            [*self.command, "build", *fixed, *options, "--tag", name, str(context)],
            log,
            env=self.env,
            shown=r"STEP \d+/\d+: (RUN|COPY|ADD)|^ +(Building|Built) |^check: ",
        )

    def export(self, name: str, archive: Path) -> None:
        """Writes an image to an archive, which appears only when it is whole."""
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        run_logged(
            [*self.command, "push", *self.signatures, name, f"docker-archive:{partial}:{name}"],
            new_log(f"export-{archive.stem.split('-')[0]}"),
            env=self.env,
        )
        partial.replace(archive)


def unmount_below(folder: Path) -> None:
    """Unmounts whatever is mounted in a folder, innermost first."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), key=len, reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
