"""The project's images, built without Docker and without a registry, once for each state of what goes into them.

The base image is Debian from debootstrap, the Dockerfile is built by buildah in a chroot, and each image
becomes an archive that a container runtime can import. An image's tag is a hash of its inputs, so a tag never
changes its meaning and "is it there" answers "is it up to date". With IMAGE_REGISTRY set (example.azurecr.io),
the images are that registry's (IMAGE_TAG, by default the project's version), and nothing is built.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from localcluster.images.base import BASE_IMAGE, make_base
from localcluster.images.builder import IMAGES, Buildah, ImageError, builder_lock, install_tools, new_log, say

ROOT = Path(__file__).resolve().parents[2]

# What each image is made of, beside what all have in common. Dockerfile and .dockerignore agree with this.
COMMON_INPUTS = ("Dockerfile", ".dockerignore", "uv.lock", "LICENSE")
INPUTS = {
    "operator": ("operator",),
    "trainer": ("trainer", "images/slim.sh"),
    "trainer-gpu": ("trainer", "images"),
    "mpi": (),
}
# The trainer is last: while it waits for Horovod, which the tests' environment may be compiling, the others are done.
TESTED = ("operator", "mpi", "trainer")
# Tables of pyproject.toml that no image depends on; the Dockerfile leaves out the same.
LINTER_TABLES = re.compile(r"^\[+tool\.(ruff|mypy|pytest|importlinter)")

# Every image is horovodjob/ROLE, behind a registry.
REPOSITORY = "horovodjob"
KEPT_ARCHIVES = 2


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
        return Image(role, f"{registry}/{REPOSITORY}/{role}:{os.environ.get('IMAGE_TAG') or project_version()}", None)
    tag = f"dev-{inputs_hash(role, root)}"
    return Image(role, f"docker.io/{REPOSITORY}/{role}:{tag}", IMAGES / f"{role}-{tag}.tar")


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
    options += ["--build-arg", f"MOUNTED_DIGEST={mounted_digest(context)}"]
    buildah.build(one.name, context, new_log(one.role), *options)
    say(f"writing {archive}")
    buildah.export(one.name, archive)
    remove_old_archives(buildah, one)


def mounted_digest(context: Path) -> str:
    """Changes with what the Dockerfile mounts from other stages, of which buildah takes no notice."""
    digest = hashlib.sha256(build_relevant((context / "pyproject.toml").read_text()).encode())
    for name in ("Dockerfile", "uv.lock", "images/slim.sh"):
        digest.update((context / name).read_bytes())
    return digest.hexdigest()[:12]


def remove_old_archives(buildah: Buildah, newest: Image) -> None:
    """Keeps the newest archives of an image; the layers of the others stay, they are the build's cache."""
    archives = sorted(IMAGES.glob(f"{newest.role}-dev-*.tar"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-KEPT_ARCHIVES]:
        archive.unlink(missing_ok=True)
        tag = archive.stem.removeprefix(f"{newest.role}-")
        with contextlib.suppress(ImageError):
            buildah.output("untag", f"docker.io/{REPOSITORY}/{newest.role}:{tag}")
