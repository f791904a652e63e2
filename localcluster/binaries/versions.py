"""The versions of all parts of the cluster: versions.toml, and the Go modules in go/."""

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError

PACKAGE = Path(__file__).parents[1]
SOURCE = PACKAGE / "go"
# Debug information takes an eighth of the time of the compiler, and the linker removes it.
GCFLAGS = "all=-dwarf=false"


@dataclass(frozen=True, slots=True)
class Component:
    """A program, or a set of programs with one version."""

    name: str
    version: str
    module: str | None = None
    stamps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Binaries that one `go build` creates in one directory of the cache."""

    name: str
    directory: str
    packages: tuple[str, ...]
    components: tuple[Component, ...]
    binary: str = ""
    """The name of the only binary, if it differs from that of its package."""
    optional: bool = False
    """Whether the group is built only if it is named."""
    files: tuple[str, ...] = ()
    """Paths of files and directories in the modules of the components that are stored beside the binaries."""

    @property
    def source(self) -> Path:
        """The directory of the Go module that pins the dependencies."""
        return SOURCE / self.directory

    @property
    def binaries(self) -> tuple[str, ...]:
        """The names of the binaries."""
        return (self.binary,) if self.binary else tuple(package.rsplit("/", 1)[-1] for package in self.packages)

    @property
    def ldflags(self) -> str:
        """The flags of the linker, which ignores stamps of variables that a binary does not have."""
        stamps = (f"-X {name}={value}" for component in self.components for name, value in component.stamps)
        return " ".join(["-s -w", *stamps])

    @property
    def key(self) -> str:
        """The directory name in the cache; it contains a hash of all inputs of the binaries."""
        digest = hashlib.sha256(repr((self.packages, self.components, GCFLAGS)).encode() + self.binary.encode())
        digest.update("".join(self.files).encode())
        own = [self.source / package for package in self.packages if package.startswith("./")]
        programs = sorted(file for directory in own for file in directory.iterdir())
        for file in (self.source / "go.mod", self.source / "go.sum", *programs):
            digest.update(str(file.relative_to(SOURCE)).encode() + b"\0" + file.read_bytes() + b"\0")
        return f"{self.name}-{digest.hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Versions:
    """The contents of versions.toml."""

    go_minimum: str
    go_pypi: str
    go_hashes: tuple[str, ...]
    components: tuple[Component, ...]
    groups: tuple[Group, ...]
    debian_packages: tuple[str, ...]
    other_kubernetes: tuple[str, ...]

    def of(self, component: str) -> str:
        """The version of a component."""
        return next(one.version for one in self.components if one.name == component)

    def select(self, names: tuple[str, ...] = ()) -> tuple[Group, ...]:
        """The groups with these names or binaries; without names all that are not optional. Raises ClusterError."""
        known = {name for group in self.groups for name in (group.name, *group.binaries)}
        if unknown := set(names) - known:
            raise ClusterError(f"{', '.join(sorted(unknown))} cannot be built; there are {', '.join(sorted(known))}")
        if not names:
            return tuple(group for group in self.groups if not group.optional)
        return tuple(group for group in self.groups if {group.name, *group.binaries} & set(names))


def versions() -> Versions:
    """Read versions.toml."""
    pinned = tomllib.loads((PACKAGE / "versions.toml").read_text())
    components = {
        name: Component(name, table["version"], table.get("module"), tuple(table.get("stamps", {}).items()))
        for name, table in pinned.items()
        if "version" in table
    }
    tables = pinned["groups"]
    own = {name for table in tables.values() for name in table.get("components", ())}
    shared = [name for name in components if name not in own]
    groups = tuple(
        Group(
            name,
            table["directory"],
            tuple(table["packages"]),
            tuple(components[component] for component in table.get("components", shared)),
            table.get("binary", ""),
            table.get("optional", False),
            tuple(table.get("files", ())),
        )
        for name, table in tables.items()
    )
    go = pinned["go"]
    return Versions(
        go["minimum"],
        go["pypi"],
        tuple(go["hashes"]),
        tuple(components.values()),
        groups,
        tuple(pinned["debian"]["packages"]),
        tuple(pinned["kubernetes"]["others"]),
    )


def check_pins(components: tuple[Component, ...]) -> None:
    """Raise ClusterError unless the versions of components are those in a go.mod."""
    required = "\n".join(file.read_text() for file in SOURCE.rglob("go.mod"))
    for component in components:
        if component.module is None:
            continue
        pin = rf"^(?:require )?\s*{re.escape(component.module)} {re.escape(component.version)}(?:\s|$)"
        if not re.search(pin, required, re.MULTILINE):
            raise ClusterError(f"versions.toml pins {component.module} {component.version}, but no go.mod does")
