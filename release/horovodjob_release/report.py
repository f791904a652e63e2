"""The list of licences of everything in an image."""

from __future__ import annotations

from horovodjob_release.packages import Package

HEADER = """\
# Licences of what {name} contains

The texts are in the image, in `/usr/share/doc/*/copyright` and `*.dist-info`.

| package | version | from | licences |
| --- | --- | --- | --- |
"""
ORIGINS = {"deb": "Debian", "pypi": "PyPI"}


def licence_report(name: str, packages: list[Package]) -> str:
    """A page with each package, its version and its licences."""
    rows = [
        f"| {package.name} | {package.version} | {ORIGINS[package.kind]} "
        f"| {', '.join(package.licences) or 'see its copyright file'} |\n"
        for package in packages
    ]
    return HEADER.format(name=name) + "".join(rows)
