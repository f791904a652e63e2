"""What an image is made of: the packages of Debian and Python in its layers."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from horovodjob_release.licences import debian_licences, python_licence
from horovodjob_release.oci import opened

STATUS, DOCUMENTS, OS_RELEASE = "var/lib/dpkg/status", "usr/share/doc", "usr/lib/os-release"
RELEVANT = re.compile(rf"{STATUS}|{OS_RELEASE}|{DOCUMENTS}/[^/]+(/copyright)?|.*\.dist-info/METADATA")
# The field Source of a package with another version than its source: `gcc-12 (12.2.0-14)`.
SOURCE = re.compile(r"(?P<name>\S+)(?: \((?P<version>[^)]+)\))?")
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """One package of an image."""

    kind: str
    """`deb` or `pypi`, as package URLs name them."""
    name: str
    version: str
    licences: tuple[str, ...] = ()
    """SPDX expression of a Python package; of a Debian package what its copyright file names."""
    section: str = field(default="", compare=False)
    """Of Debian's archive; `main` has no prefix."""
    has_copyright_file: bool = field(default=True, compare=False)
    architecture: str = ""
    source: str = ""
    """Name of the Debian source package, by which advisories name a vulnerability."""
    source_version: str = ""
    distribution: str = ""
    """ID and version of the distribution, such as `debian-12`."""


def image_packages(archive: Path) -> list[Package]:
    """All packages of the image in a docker archive, in order."""
    files = _relevant_files(archive)
    python = [_python_package(text) for name, text in files.items() if name.endswith(".dist-info/METADATA")]
    return sorted({*_debian_packages(files), *python})


def _relevant_files(archive: Path) -> dict[str, str]:
    """Contents of the files that describe packages; for a symbolic link, its target."""
    found: dict[str, str] = {}
    with opened(archive) as image:
        for layer in image.layers:
            with image.layer(layer) as file, tarfile.open(fileobj=file) as members:
                for member in members:
                    _apply(found, members, member)
    return found


def _apply(found: dict[str, str], members: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    """Add, replace or remove what one entry of a layer stands for."""
    path = PurePosixPath(member.name.removeprefix("./").removeprefix("/"))
    if path.name.startswith(WHITEOUT):
        removed = str(path.parent if path.name == OPAQUE else path.with_name(path.name.removeprefix(WHITEOUT)))
        for name in [name for name in found if name == removed or name.startswith(f"{removed}/")]:
            del found[name]
    elif RELEVANT.fullmatch(str(path)):
        if member.issym():
            found[str(path)] = str(path.parent / member.linkname) if path.name != "copyright" else member.linkname
        elif (content := members.extractfile(member)) is not None:
            found[str(path)] = content.read().decode(errors="replace")


def _debian_packages(files: dict[str, str]) -> Iterator[Package]:
    distribution = _distribution(files.get(OS_RELEASE, ""))
    for paragraph in files.get(STATUS, "").split("\n\n"):
        fields = _fields(paragraph)
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            folder = files.get(f"{DOCUMENTS}/{name}", f"{DOCUMENTS}/{name}")
            text = files.get(f"{folder}/copyright", "")
            source = SOURCE.match(fields.get("Source", name))
            yield Package(
                "deb",
                name,
                version,
                debian_licences(text),
                fields["Section"],
                bool(text),
                fields["Architecture"],
                source["name"] if source else name,
                (source and source["version"]) or version,
                distribution,
            )


def _distribution(os_release: str) -> str:
    """ID and version from the file os-release, as package URLs name a distribution."""
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    return "-".join(values[name].strip('"') for name in ("ID", "VERSION_ID") if name in values)


def _python_package(text: str) -> Package:
    fields = _fields(text)
    return Package("pypi", fields["Name"], fields["Version"], (python_licence(fields),))


def _fields(text: str) -> Message[str, str]:
    return HeaderParser().parsestr(text.strip())
