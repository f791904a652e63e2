"""The images in the containerd of a node: archives are imported once for the same content."""

import contextlib
import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

from localcluster.binaries.cache import Binaries
from localcluster.errors import ClusterError
from localcluster.settings import Node

ARCHIVE_LABEL = "horovodjob.dev/archive"
INDEX_FILES = ("manifest.json", "index.json")  # of a docker-archive, of an OCI archive


class ImageStore:
    """The images of one node. Its methods raise ClusterError."""

    def __init__(self, node: Node, binaries: Binaries) -> None:
        self.node, self.binaries = node, binaries

    def is_answering(self) -> bool:
        """Whether containerd answers requests."""
        if not self.node.containerd_socket.exists():
            return False
        with contextlib.suppress(ClusterError):
            self.ctr("version")
            return True
        return False

    def load(self, archive: Path) -> tuple[list[str], bool]:
        """Import an archive unless its content is present. Returns the names of its images, and if it was imported."""
        fingerprint, names = describe(archive)
        present = self._labelled(fingerprint)
        if present and present.issuperset(names):
            return sorted(present), False
        before = set(self.ctr("images", "ls", "-q").splitlines())
        self.ctr("images", "import", str(archive))
        imported = names or set(self.ctr("images", "ls", "-q").splitlines()) - before
        for name in imported:  # labels are set last, so that an interrupted import is repeated
            self.ctr("images", "label", name, f"{ARCHIVE_LABEL}={fingerprint}")
        return sorted(imported), True

    def remove_containers(self) -> None:
        """Remove all containers, whose processes have ended, with their file systems."""
        if containers := self.ctr("containers", "ls", "-q").split():
            self.ctr("containers", "rm", *containers)

    def _labelled(self, fingerprint: str) -> set[str]:
        return set(self.ctr("images", "ls", "-q", f'labels."{ARCHIVE_LABEL}"=={fingerprint}').splitlines())

    def ctr(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run ctr, the client of containerd. Returns its standard output."""
        command = [str(self.binaries.path("ctr")), f"--address={self.node.containerd_socket}"]
        command += ["--namespace=k8s.io", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False)
        if done.returncode:
            raise ClusterError(f"ctr {' '.join(arguments)[:200]} ended with: {done.stderr.decode().strip()}")
        return done.stdout.decode()


def describe(archive: Path) -> tuple[str, set[str]]:
    """A hash of the content of an archive, and the full names of its images. Raises ClusterError."""
    try:
        with tarfile.open(archive) as files:
            indexes = {name: read(files, name) for name in INDEX_FILES if name in files.getnames()}
            if not indexes:
                raise ClusterError(f"{archive} is neither a docker-archive nor an OCI archive")
            digest = hashlib.sha256(b"".join(indexes.values()))
            names: set[str] = set()
            for image in json.loads(indexes.get("manifest.json", b"[]")):
                names.update(map(full_name, image.get("RepoTags") or []))
                digest.update(read(files, image["Config"]))
    except (OSError, tarfile.TarError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ClusterError(f"{archive} is not an image archive: {reason}") from error
    return digest.hexdigest()[:32], names


def read(files: tarfile.TarFile, name: str) -> bytes:
    """The content of a file in an archive. Raises KeyError."""
    member = files.extractfile(name)
    if member is None:
        raise KeyError(name)
    with member:
        return member.read()


def full_name(reference: str) -> str:
    """A reference with the default registry and the default tag added if they are missing."""
    registry, slash, _ = reference.partition("/")
    if not slash:
        reference = f"docker.io/library/{reference}"
    elif not ("." in registry or ":" in registry or registry == "localhost"):
        reference = f"docker.io/{reference}"
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"
