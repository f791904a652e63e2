"""Software bills of materials in CycloneDX 1.6, the same for the same packages."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalEntity
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from horovodjob_release.licences import UNKNOWN
from horovodjob_release.packages import Package

NAMESPACES = {"deb": "debian", "pypi": None}
LICENCES = LicenseFactory()
# [epoch:]upstream version[-Debian revision], Debian Policy 5.6.12.
DEBIAN_VERSION = re.compile(r"(?:(?P<Epoch>\d+):)?(?P<Version>.+?)(?:-(?P<Release>[^-]+))?")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bill_of_materials(subject: Component, packages: Iterable[Package]) -> str:
    """The bill of an image or a distribution as JSON, with the packages that it contains or requires."""
    bom = Bom()
    bom.metadata.component = subject
    bom.metadata.timestamp = EPOCH
    packages = tuple(packages)
    components = [_component(package) for package in packages]
    systems = [_operating_system(each) for each in sorted({package.distribution for package in packages} - {""})]
    bom.components.update(components, systems)
    bom.register_dependency(subject, components)
    names = "".join(sorted(str(component.purl) for component in components))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"{subject.bom_ref.value}\n{names}")
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def image_component(name: str, version: str, digest: str) -> Component:
    """An image of this project."""
    purl = PackageURL("oci", name=name.rpartition("/")[2], version=digest, qualifiers={"repository_url": name})
    return _own(ComponentType.CONTAINER, name, version, purl)


def distribution_component(name: str, version: str) -> Component:
    """A Python distribution of this project."""
    return _own(ComponentType.APPLICATION, name, version, PackageURL("pypi", name=name, version=version))


def components(bill: str) -> list[dict[str, Any]]:
    """The components of a bill."""
    found: list[dict[str, Any]] = json.loads(bill)["components"]
    return found


def _own(kind: ComponentType, name: str, version: str, purl: PackageURL) -> Component:
    return Component(
        type=kind,
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        supplier=OrganizationalEntity(name="HorovodJob"),
        licenses=[LICENCES.make_from_string("Apache-2.0")],
    )


def _component(package: Package) -> Component:
    qualifiers = _debian_qualifiers(package) if package.kind == "deb" else {}
    purl = PackageURL(package.kind, NAMESPACES[package.kind], package.name, package.version, qualifiers)
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        purl=purl,
        bom_ref=str(purl),
        licenses=list(_licences(package)),
        properties=_source_properties(package) if package.kind == "deb" else (),
    )


def _debian_qualifiers(package: Package) -> dict[str, str]:
    """What Grype matches Debian's advisories by: the distribution, and the source package, which it calls upstream."""
    return {
        "arch": package.architecture,
        "distro": package.distribution,
        "upstream": f"{package.source}@{package.source_version}",
    }


def _source_properties(package: Package) -> list[Property]:
    """The source package once more: Trivy reads it, and its version in parts, from properties of its own alone."""
    found = DEBIAN_VERSION.fullmatch(package.source_version)
    version = {f"Src{part}": value for part, value in found.groupdict().items() if value} if found else {}
    parts = {"SrcName": package.source, **version}
    return [Property(name=f"aquasecurity:trivy:{name}", value=value) for name, value in parts.items()]


def _operating_system(distribution: str) -> Component:
    """Without it, Trivy ignores the packages of the distribution."""
    name, _, version = distribution.partition("-")
    return Component(type=ComponentType.OPERATING_SYSTEM, name=name, version=version, bom_ref=distribution)


def _licences(package: Package) -> Iterable[License]:
    """Debian's short names are names of licences; an expression stands alone."""
    if package.kind == "deb":
        return [LICENCES.make_with_name(name) for name in package.licences]
    return [LICENCES.make_from_string(text) for text in package.licences if text != UNKNOWN]
