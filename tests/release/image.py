"""A small image in the format of the image builder."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from localcluster.binaries.static_image import tar

STATUS = """\
Package: base-files
Status: install ok installed
Section: admin
Architecture: amd64
Version: 12.4

Package: linked
Status: install ok installed
Section: libs
Architecture: amd64
Source: openssl (1:3.0.11-1~deb12u1)
Version: 1:3.0.11-1~deb12u1+b1

Package: removed
Status: deinstall ok config-files
Section: net
Architecture: all
Version: 1
"""
OS_RELEASE = b'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n'
COPYRIGHT = b"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2+\n"
PYTHON = "opt/venv/lib/python3.11/site-packages"


def metadata(name: str) -> bytes:
    """Core metadata of a Python package."""
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: MIT\n".encode()


def write_image(archive: Path) -> Path:
    """Write an image of two Debian packages, of which one has its documents in the folder of the other, and two Python
    packages, of which the second layer removes one."""
    below = {
        "var/lib/dpkg/status": STATUS.encode(),
        "usr/lib/os-release": OS_RELEASE,
        "usr/share/doc/base-files/copyright": COPYRIGHT,
        f"{PYTHON}/kept-1.0.dist-info/METADATA": metadata("kept"),
        f"{PYTHON}/gone-1.0.dist-info/METADATA": metadata("gone"),
    }
    layers = [
        tar(below, mode=0o644),
        tar({f"{PYTHON}/.wh.gone-1.0.dist-info": b""}, mode=0o644),
        link("usr/share/doc/linked", "base-files"),
    ]
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    names = [f"{digest}.tar" for digest in digests]
    root = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    config = {"Labels": {"org.opencontainers.image.title": "an image"}}
    manifest = [{"Config": "config.json", "RepoTags": ["dev:1"], "Layers": names}]
    files = {
        "manifest.json": json.dumps(manifest).encode(),
        "config.json": json.dumps({"os": "linux", "architecture": "amd64", "config": config, "rootfs": root}).encode(),
    }
    archive.write_bytes(tar(files | dict(zip(names, layers, strict=True)), mode=0o644))
    return archive


def link(name: str, target: str) -> bytes:
    """A tar archive of a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)
    return buffer.getvalue()


def read(archive: Path) -> dict[str, bytes]:
    """The files of a tar archive."""
    with tarfile.open(archive) as files:
        return {member.name: file.read() for member in files if (file := files.extractfile(member))}
