"""A second build of an image, which must have the digest of the first."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from horovodjob_release.errors import ReleaseError
from horovodjob_release.images import image_name
from horovodjob_release.oci import write_oci_archive
from horovodjob_release.publication import Publication, image_labels
from horovodjob_release.version import project_version


def image_digest(root: Path, role: str, publication: Publication, cache: Path | None = None) -> str:
    """The digest of an image that is built without anything of earlier builds."""
    with contextlib.ExitStack() as stack:
        folder = cache or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="horovodjob-")))
        done = subprocess.run(
            [sys.executable, str(root / "localcluster/images"), "build", role],
            env={**os.environ, "HOROVODJOB_CACHE": str(folder.absolute())},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ReleaseError(f"the image {role} cannot be built; the reason is above")
        archive = Path(json.loads(done.stdout)[role]["archive"])
        name = image_name("", role, project_version(root))  # no part of the digest
        return write_oci_archive(archive, name, archive.with_suffix(".oci"), image_labels(root, publication))
