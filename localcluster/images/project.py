"""The images of the project, built without Docker and without a registry, once for each state of their inputs.

The base image is Debian from debootstrap. buildah builds the Dockerfile in a chroot, and each image is written to an
archive that a container runtime can import. The tag of an image is a hash of its inputs, so an archive that exists is
up to date. With IMAGE_REGISTRY (example.azurecr.io), the images are those of the registry, with the tag IMAGE_TAG or
the version of the project, and nothing is built.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from localcluster.images.base import BASE_IMAGE, make_base
from localcluster.images.builder import IMAGES, Buildah, ImageError, builder_lock, install_tools, log_progress, new_log

ROOT = Path(__file__).resolve().parents[2]

# The inputs of each image, beside those of all. Dockerfile and .dockerignore agree with this.
COMMON_INPUTS = ("Dockerfile", ".dockerignore", "uv.lock", "LICENSE")
INPUTS = {
    "operator": ("operator",),
    "dashboard": ("operator",),
    "hvj": ("operator",),
    "trainer": ("trainer", "images/slim.sh", "images/horovod"),
    "trainer-gpu": ("trainer", "images"),
    "mpi": (),
}
# The trainer is last: it may have to wait for Horovod, which the environment of the tests may be compiling.
TESTED = ("operator", "dashboard", "hvj", "mpi", "trainer")
# Tables of pyproject.toml on which no image depends; the Dockerfile ignores the same ones.
LINTER_TABLES = re.compile(r"^\[+tool\.(ruff|mypy|pytest|importlinter)")

# Each image is REGISTRY/horovodjob/ROLE.
REPOSITORY = "horovodjob"
KEPT_ARCHIVES = 2
# The only machine of the environments in pyproject.toml.
ARCHITECTURE = "x86_64"


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its name, and its archive if it is built on this machine."""

    role: str
    name: str
    archive: Path | None

    @property
    def built(self) -> bool:
        """Whether the image can be used without a build."""
        return self.archive is None or self.archive.exists()


def build_relevant(pyproject: str) -> str:
    """The text of pyproject.toml without the tables of linters."""
    kept, keep = [], False
    for line in pyproject.splitlines(keepends=True):
        if line.startswith("["):
            keep = LINTER_TABLES.match(line) is None
        if keep:
            kept.append(line)
    return "".join(kept)


def source_files(source: Path) -> list[Path]:
    """The files below a directory that an image contains, in a fixed order; for a file, the file."""
    found = [source, *source.rglob("*")]
    return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def inputs_hash(role: str, root: Path) -> str:
    """A hash of the inputs of an image: twelve hexadecimal digits."""
    digest = hashlib.sha256(f"{BASE_IMAGE}\n{build_relevant((root / 'pyproject.toml').read_text())}".encode())
    for path in [file for name in (*COMMON_INPUTS, *INPUTS[role]) for file in source_files(root / name)]:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)} {path.stat().st_mode & 0o111}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def project_version() -> str:
    """The version of the project, from pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def image(role: str, root: Path = ROOT) -> Image:
    """The image for the present state of the inputs, or that of IMAGE_REGISTRY."""
    if registry := os.environ.get("IMAGE_REGISTRY", "").rstrip("/"):
        return Image(role, f"{registry}/{REPOSITORY}/{role}:{os.environ.get('IMAGE_TAG') or project_version()}", None)
    tag = f"dev-{inputs_hash(role, root)}"
    return Image(role, f"docker.io/{REPOSITORY}/{role}:{tag}", IMAGES / f"{role}-{tag}.tar")


def build(roles: list[str]) -> list[Image]:
    """Build the images that do not exist. Returns all; raises ImageError."""
    wanted = [image(role) for role in roles]
    if all(one.built for one in wanted):
        return wanted
    if (machine := platform.machine()) != ARCHITECTURE:
        raise ImageError(
            f"the images are for {ARCHITECTURE}, for which uv.lock has packages, and this machine is {machine}: "
            f"build them on {ARCHITECTURE}, and run them on nodes with kubernetes.io/arch: amd64"
        )
    if os.geteuid() != 0:
        raise ImageError("building images needs root: debootstrap and buildah make file systems")
    with builder_lock():
        install_tools()
        buildah = Buildah()
        buildah.repair()
        make_base(buildah)
        with tempfile.TemporaryDirectory(prefix="context-", dir=IMAGES) as folder:
            copy_inputs(Path(folder))
            wanted = [image(role, Path(folder)) for role in roles]
            for one in wanted:
                if one.archive and not one.archive.exists():
                    build_one(buildah, one, one.archive, Path(folder))
    return wanted


def copy_inputs(context: Path) -> None:
    """Copy the inputs of images, so that a change during the build does not get the wrong tag.

    All files get the same time, on which layers depend, so a fresh clone uses the layers of earlier builds.
    """
    for name in (*COMMON_INPUTS, "pyproject.toml"):
        shutil.copy(ROOT / name, context / name)
    for name in ("operator", "trainer", "images"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in context.rglob("*"):
        os.utime(path, (0, 0))


def build_one(buildah: Buildah, one: Image, archive: Path, context: Path) -> None:
    """Build one image and write its archive. Raises ImageError."""
    log_progress(f"building {one.name}")
    options = ["--target", one.role, "--build-arg", f"BASE_IMAGE={BASE_IMAGE}"]
    if (buildah.mounted / "ca.crt").exists():
        options += ["--build-arg", "CA_BUNDLE=/mnt/ca.crt", "--volume", f"{buildah.mounted}:/mnt:ro"]
    options += ["--build-arg", f"MOUNTED_DIGEST={mounted_digest(context)}"]
    buildah.build(one.name, context, new_log(one.role), *options)
    log_progress(f"writing {archive}")
    buildah.export(one.name, archive)
    remove_old_archives(buildah, one)


def mounted_digest(context: Path) -> str:
    """A hash of what the Dockerfile mounts from other stages, which buildah does not compare with its cache."""
    digest = hashlib.sha256(build_relevant((context / "pyproject.toml").read_text()).encode())
    for name in ("Dockerfile", "uv.lock", "images/slim.sh"):
        digest.update((context / name).read_bytes())
    return digest.hexdigest()[:12]


def remove_old_archives(buildah: Buildah, newest: Image) -> None:
    """Remove all but the newest archives of an image; their layers remain, because they are the cache of builds."""
    archives = sorted(IMAGES.glob(f"{newest.role}-dev-*.tar"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-KEPT_ARCHIVES]:
        archive.unlink(missing_ok=True)
        tag = archive.stem.removeprefix(f"{newest.role}-")
        with contextlib.suppress(ImageError):
            buildah.output("untag", f"docker.io/{REPOSITORY}/{newest.role}:{tag}")
