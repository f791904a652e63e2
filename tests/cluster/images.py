"""Builds the images without Docker and without a registry, once for each state of what goes into them.

    python3 tests/cluster/images.py build [operator|trainer|trainer-gpu|mpi|all]...
    python3 tests/cluster/images.py load  [operator|trainer|trainer-gpu|mpi|all]...    builds what is missing first
    python3 tests/cluster/images.py names [operator|trainer|trainer-gpu|mpi|all]...    builds nothing

`all`, the default, are those that the tests need: the trainer for GPUs takes a quarter of an hour and much of the disk.
Each prints JSON: for each role image, archive, built. What another command prints later may differ: sources change.

The base image is Debian from debootstrap, the Dockerfile is built by buildah in a chroot, and each image
becomes an archive that a container runtime can import. An image's tag is a hash of its inputs, so a tag never
changes its meaning and "is it there" answers "is it up to date". With IMAGE_REGISTRY set, the images are that
registry's (IMAGE_TAG, by default the project's version), and nothing is built.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("HOROVODJOB_CACHE") or Path.home() / ".cache" / "horovodjob")
IMAGES = CACHE / "images"

# What each image is made of, beside what all have in common. Dockerfile and .dockerignore agree with this.
COMMON_INPUTS = ("Dockerfile", ".dockerignore", "uv.lock", "LICENSE")
INPUTS = {
    "operator": ("operator",),
    "trainer": ("trainer", "images/slim.sh"),
    "trainer-gpu": ("trainer", "images"),
    "mpi": (),
}
TESTED = ("operator", "trainer", "mpi")
# Tables of pyproject.toml that no image depends on; the Dockerfile leaves out the same.
LINTER_TABLES = re.compile(r"^\[+tool\.(ruff|mypy|pytest|importlinter)")

SUITE = "bookworm"
# A new number makes the base image anew, for everybody.
BASE_VERSION = 1
BASE_IMAGE = f"localhost/horovodjob/base:{SUITE}-{BASE_VERSION}"
# What the official slim image leaves out as well.
UNWANTED = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian")
DPKG_EXCLUDES = "".join(f"path-exclude /{path}/*\n" for path in UNWANTED)

# Programs, and the packages of the same names that have them.
TOOLS = ("buildah", "debootstrap")
CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
KEPT_ARCHIVES = 2
# Layers of earlier builds are kept, for speed, while the disk has more room than this.
SCARCE_BYTES = 12 * 1024**3
# What a build that was killed leaves in the folder of the images.
LEFT_OVERS = ("tmp/buildah[0-9]*", "*.partial", "context-*", "rootfs-*")
STARTED = time.monotonic()


class ImageError(Exception):
    """An image cannot be had; the message is for the person who asked for it."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image, by its name and, where it is built here, the archive it is in."""

    role: str
    name: str
    archive: Path | None

    @property
    def built(self) -> bool:
        """Whether nothing has to be built to use it."""
        return self.archive is None or self.archive.exists()


def say(message: str) -> None:
    """One line of progress, with the seconds since the start; standard output is for results."""
    print(f"images {time.monotonic() - STARTED:6.1f}s  {message}", file=sys.stderr, flush=True)


def build_relevant(pyproject: str) -> str:
    """pyproject.toml without the linters' tables."""
    kept, keep = [], False
    for line in pyproject.splitlines(keepends=True):
        if line.startswith("["):
            keep = LINTER_TABLES.match(line) is None
        if keep:
            kept.append(line)
    return "".join(kept)


def source_files(source: Path) -> list[Path]:
    """The files of a source root that get into an image, in a fixed order; a file is its own."""
    found = [source, *source.rglob("*")]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def inputs_hash(role: str, root: Path) -> str:
    """Twelve hexadecimal digits that change when an input of the image does."""
    digest = hashlib.sha256(f"{BASE_IMAGE}\n{build_relevant((root / 'pyproject.toml').read_text())}".encode())
    for path in [file for name in (*COMMON_INPUTS, *INPUTS[role]) for file in source_files(root / name)]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)} {path.stat().st_mode & 0o111}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def project_version() -> str:
    """The version in pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def image(role: str, root: Path = ROOT) -> Image:
    """The image of this state of the tree, or the registry's where one is given."""
    if registry := os.environ.get("IMAGE_REGISTRY", "").rstrip("/"):
        return Image(role, f"{registry}/{role}:{os.environ.get('IMAGE_TAG') or project_version()}", None)
    tag = f"dev-{inputs_hash(role, root)}"
    return Image(role, f"docker.io/horovodjob/{role}:{tag}", IMAGES / f"{role}-{tag}.tar")


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
        """Builds an image, showing its steps."""
        fixed = ["--isolation", "chroot", "--network", "host", "--layers", *self.signatures]
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


def make_base(buildah: Buildah) -> None:
    """Makes the Debian base image, unless the storage has it."""
    if buildah.has(BASE_IMAGE):
        return
    archive = IMAGES / f"base-{SUITE}-{BASE_VERSION}.tar"
    if not archive.exists():
        say(f"base image: Debian {SUITE}, about a minute")
        with tempfile.TemporaryDirectory(prefix="rootfs-", dir=IMAGES) as folder:
            os.chmod(folder, 0o755)
            fill_root(Path(folder), new_log("base"))
            partial = archive.with_suffix(".partial")
            pack = ["tar", "-C", folder, "--numeric-owner", "-cf", str(partial), "."]
            run_logged(pack, new_log("base-archive"))
            partial.replace(archive)
    with tempfile.TemporaryDirectory(prefix="context-", dir=IMAGES) as folder:
        os.link(archive, Path(folder, "base.tar"))
        Path(folder, "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
        buildah.build(BASE_IMAGE, Path(folder), new_log("base-image"))


def debian_sources() -> dict[str, str]:
    """Where this machine gets the suite, its updates and its security updates from, by suite.

    Empty where it is another Debian: then debootstrap goes where it goes by default.
    """
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line.strip())
    return {suite: found[suite] for suite in (SUITE, f"{SUITE}-updates", f"{SUITE}-security") if suite in found}


def fill_root(root: Path, log: Path) -> None:
    """Installs a minimal Debian with its security updates into a folder."""
    environment = {**os.environ, "PATH": system_path(), "DEBIAN_FRONTEND": "noninteractive"}
    sources = debian_sources()
    try:
        command = ["debootstrap", "--variant=minbase", SUITE, str(root)]
        run_logged([*command, *([sources[SUITE]] if SUITE in sources else [])], log, env=environment)
    finally:
        unmount_below(root)  # debootstrap leaves /proc mounted when it is interrupted
    if SUITE in sources:
        lines = [f"deb {site} {suite} main\n" for suite, site in sources.items()]
        (root / "etc/apt/sources.list").write_text("".join(lines))
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(DPKG_EXCLUDES)
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # packages start no services
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    for step in (["apt-get", "update"], ["apt-get", "-y", "--no-install-recommends", "dist-upgrade"]):
        run_logged(["chroot", str(root), *step], log, env={**environment, "LC_ALL": "C"})
    (root / "etc/resolv.conf").write_text("")
    empty = (*UNWANTED, "var/cache/apt", "var/lib/apt/lists", "var/log")
    for pattern in [f"{path}/*" for path in empty]:
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def build(roles: list[str]) -> list[Image]:
    """Builds the images that are not there yet, and gives them all."""
    wanted = [image(role) for role in roles]
    if all(one.built for one in wanted):
        return wanted
    if os.geteuid() != 0:
        raise ImageError("building images needs root: debootstrap and buildah make file systems")
    with builder_lock():
        install_tools()
        buildah = Buildah()
        buildah.heal()
        make_base(buildah)
        with tempfile.TemporaryDirectory(prefix="context-", dir=IMAGES) as folder:
            copy_inputs(Path(folder))
            wanted = [image(role, Path(folder)) for role in roles]
            for one in wanted:
                if one.archive and not one.archive.exists():
                    build_one(buildah, one, one.archive, Path(folder))
    return wanted


def copy_inputs(context: Path) -> None:
    """Copies what images are made of, so that an edit during the build cannot get under a wrong tag.

    All files get one time: layers depend on it, and a fresh clone is no reason to make them again.
    """
    for name in (*COMMON_INPUTS, "pyproject.toml"):
        shutil.copy(ROOT / name, context / name)
    for name in ("operator", "trainer", "images"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in context.rglob("*"):
        os.utime(path, (0, 0))


def build_one(buildah: Buildah, one: Image, archive: Path, context: Path) -> None:
    """Builds one image and writes its archive."""
    say(f"building {one.name}")
    options = ["--target", one.role, "--build-arg", f"BASE_IMAGE={BASE_IMAGE}"]
    if (buildah.mounted / "ca.crt").exists():
        options += ["--build-arg", "CA_BUNDLE=/mnt/ca.crt", "--volume", f"{buildah.mounted}:/mnt:ro"]
    buildah.build(one.name, context, new_log(one.role), *options)
    say(f"writing {archive}")
    buildah.export(one.name, archive)
    remove_old_archives(buildah, one)


def remove_old_archives(buildah: Buildah, newest: Image) -> None:
    """Keeps the newest archives of an image; the layers of the others stay, they are the build's cache."""
    archives = sorted(IMAGES.glob(f"{newest.role}-dev-*.tar"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-KEPT_ARCHIVES]:
        archive.unlink(missing_ok=True)
        tag = archive.stem.removeprefix(f"{newest.role}-")
        with contextlib.suppress(ImageError):
            buildah.output("untag", f"docker.io/horovodjob/{newest.role}:{tag}")


def load(wanted: list[Image]) -> None:
    """Brings images into the local cluster."""
    archives = [str(one.archive) for one in wanted if one.archive]
    if archives:
        name = os.environ.get("CLUSTER_NAME", "main")
        command = [sys.executable, str(Path(__file__).parent), "--name", name, "load-image", *archives]
        subprocess.run(command, check=True, stdout=sys.stderr)


def report(wanted: list[Image]) -> None:
    """Prints the images as JSON, and says how large they are."""
    found = {}
    for one in wanted:
        if one.archive and one.archive.exists():
            say(f"{one.name}  {one.archive.stat().st_size / 1e6:.0f} MB")
        archive = str(one.archive) if one.archive else None
        found[one.role] = {"image": one.name, "archive": archive, "built": one.built}
    print(json.dumps(found, indent=2))


def main() -> int:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=["build", "load", "names"])
    parser.add_argument("roles", nargs="*", choices=[*INPUTS, "all"], default="all")
    arguments = parser.parse_args()
    roles = list(TESTED) if "all" in arguments.roles else arguments.roles
    # A polite end, too, runs the clean-up of what was begun.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        wanted = [image(role) for role in roles] if arguments.action == "names" else build(roles)
        if arguments.action == "load":
            load(wanted)
        report(wanted)
    except (ImageError, subprocess.CalledProcessError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
