"""Images in a node's containerd: imported from archives, once for the same content."""

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
    """The images that pods on one node can use."""

    def __init__(self, node: Node, binaries: Binaries) -> None:
        self.node, self.binaries = node, binaries

    def is_answering(self) -> bool:
        """Whether containerd serves requests."""
        if not self.node.containerd_socket.exists():
            return False
        with contextlib.suppress(ClusterError):
            self.ctr("version")
            return True
        return False

    def load(self, archive: Path) -> tuple[list[str], bool]:
        """The names of the images in `archive`, and whether it had to be imported."""
        fingerprint, names = describe(archive)
        present = self._labelled(fingerprint)
        if present and present.issuperset(names):
            return sorted(present), False
        before = set(self.ctr("images", "ls", "-q").splitlines())
        self.ctr("images", "import", str(archive))
        imported = names or set(self.ctr("images", "ls", "-q").splitlines()) - before
        for name in imported:  # the label comes last: an interrupted import is repeated
            self.ctr("images", "label", name, f"{ARCHIVE_LABEL}={fingerprint}")
        return sorted(imported), True

    def remove_containers(self) -> None:
        """Forget all containers, whose processes have ended, with their file systems."""
        if containers := self.ctr("containers", "ls", "-q").split():
            self.ctr("containers", "rm", *containers)

    def _labelled(self, fingerprint: str) -> set[str]:
        return set(self.ctr("images", "ls", "-q", f'labels."{ARCHIVE_LABEL}"=={fingerprint}').splitlines())

    def ctr(self, *arguments: str, stdin: bytes = b"") -> str:
        """Standard output of containerd's own client."""
        command = [str(self.binaries.path("ctr")), f"--address={self.node.containerd_socket}"]
        command += ["--namespace=k8s.io", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False)
        if done.returncode:
            raise ClusterError(f"ctr {' '.join(arguments)[:200]} ended with: {done.stderr.decode().strip()}")
        return done.stdout.decode()


def describe(archive: Path) -> tuple[str, set[str]]:
    """A fingerprint of the archive's content, and the names of its images as containerd spells them."""
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
    member = files.extractfile(name)
    if member is None:
        raise KeyError(name)
    with member:
        return member.read()


def full_name(reference: str) -> str:
    """`reference` with the registry and tag that a short name stands for."""
    registry, slash, _ = reference.partition("/")
    if not slash:
        reference = f"docker.io/library/{reference}"
    elif not ("." in registry or ":" in registry or registry == "localhost"):
        reference = f"docker.io/{reference}"
    return reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"
