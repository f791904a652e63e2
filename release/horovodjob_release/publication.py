"""Where a release is published, and what its images say about their origin."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from horovodjob_release.version import project_version

LABEL = "org.opencontainers.image"


@dataclass(frozen=True, slots=True)
class Publication:
    """Where a release is published; charts, manifests and images name it."""

    registry: str = ""
    """Such as ghcr.io/team; empty: the images have names without a registry."""
    project: str = ""
    """OWNER/REPOSITORY on GitHub; empty: the charts keep these words."""

    @property
    def source(self) -> str:
        """URL of the sources; empty without a project."""
        return f"https://github.com/{self.project}" if self.project else ""


def image_labels(root: Path, publication: Publication) -> dict[str, str]:
    """Source, version and revision of an image, in the words of the OCI; what is not known is left out."""
    known = {"source": publication.source, "version": project_version(root), "revision": revision(root)}
    return {f"{LABEL}.{name}": value for name, value in known.items() if value}


def revision(root: Path) -> str:
    """The commit of this checkout, with `-dirty` if it has other files; empty without Git."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run([*command, "--exclude=*"], capture_output=True, text=True, check=False)
    return done.stdout.strip()
