"""CHANGELOG.md, in the form of Keep a Changelog 1.1.0."""

from __future__ import annotations

import re
from pathlib import Path

from horovodjob_release.errors import ReleaseError

HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def sections(text: str) -> dict[str, str]:
    """What changed in each version, the newest first."""
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    return {heading["version"]: text[heading.end() : end].strip() for heading, end in zip(headings, ends, strict=True)}


def notes(root: Path, version: str) -> str:
    """The notes of a release. Raises ReleaseError where the changelog has none."""
    found = sections((root / "CHANGELOG.md").read_text()).get(version)
    if not found:
        raise ReleaseError(f"CHANGELOG.md has no entries for {version}: add `## [{version}] - YYYY-MM-DD`")
    return found
