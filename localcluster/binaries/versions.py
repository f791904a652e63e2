"""What the local cluster is made of: the contents of versions.toml, and the Go modules in go/."""

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError

HERE = Path(__file__).parents[1]
SOURCE = HERE / "go"
# Debug information costs an eighth of the compiler's time, and the linker drops it anyway.
GCFLAGS = "all=-dwarf=false"


@dataclass(frozen=True, slots=True)
class Component:
    """One program or set of programs with a version of its own."""

    name: str
    version: str
    module: str | None = None
    stamps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Binaries that one `go build` makes and one directory of the cache holds."""

    name: str
    directory: str
    packages: tuple[str, ...]
    components: tuple[Component, ...]
    binary: str = ""
    """Name of the only binary, where its package has the name of another one."""
    optional: bool = False
    """Whether it is built only when it is named."""
    files: tuple[str, ...] = ()
    """Files of the component's module that are kept beside the binaries, by their paths there."""

    @property
    def source(self) -> Path:
        """The Go module that pins what the packages are compiled with."""
        return SOURCE / self.directory

    @property
    def binaries(self) -> tuple[str, ...]:
        return (self.binary,) if self.binary else tuple(package.rsplit("/", 1)[-1] for package in self.packages)

    @property
    def ldflags(self) -> str:
        """Flags of the linker, which ignores the stamps of variables that a binary does not have."""
        stamps = (f"-X {name}={value}" for component in self.components for name, value in component.stamps)
        return " ".join(["-s -w", *stamps])

    @property
    def key(self) -> str:
        """Changes with anything that could change the binaries."""
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
    components: tuple[Component, ...]
    groups: tuple[Group, ...]
    debian_packages: tuple[str, ...]

    def of(self, component: str) -> str:
        return next(one.version for one in self.components if one.name == component)

    def select(self, names: tuple[str, ...] = ()) -> tuple[Group, ...]:
        """The groups that are named or have a named binary; without a name all that are not optional."""
        known = {name for group in self.groups for name in (group.name, *group.binaries)}
        if unknown := set(names) - known:
            raise ClusterError(f"{', '.join(sorted(unknown))} cannot be built; there are {', '.join(sorted(known))}")
        if not names:
            return tuple(group for group in self.groups if not group.optional)
        return tuple(group for group in self.groups if {group.name, *group.binaries} & set(names))


def versions() -> Versions:
    """The pinned versions."""
    pinned = tomllib.loads((HERE / "versions.toml").read_text())
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
    return Versions(go["minimum"], go["pypi"], tuple(components.values()), groups, tuple(pinned["debian"]["packages"]))


def check_pins(components: tuple[Component, ...]) -> None:
    """Raise unless versions.toml and the modules name the same versions."""
    required = "\n".join(file.read_text() for file in SOURCE.rglob("go.mod"))
    for component in components:
        if component.module is None:
            continue
        pin = rf"^(?:require )?\s*{re.escape(component.module)} {re.escape(component.version)}(?:\s|$)"
        if not re.search(pin, required, re.MULTILINE):
            raise ClusterError(f"versions.toml pins {component.module} {component.version}, but no go.mod does")
