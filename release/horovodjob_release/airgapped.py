"""The archive for air-gapped clusters: images, charts, manifests, and how they are installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from horovodjob_release.archives import sha256, write_tar

# Of the files of a release, by the folder in the archive.
CONTENTS = {
    "images": ("*.oci.tar",),
    "charts": ("*.tgz",),
    "manifests": ("*.yaml", "horovodjob-manifests-*.tar.gz"),
    "sbom": ("*.oci.tar.cdx.json",),
    "licences": ("*.licences.md",),
}
INSTALL = """\
HorovodJob {version} for clusters that reach no registry

  images/     OCI archives of {images}
  charts/     Helm charts: horovodjob-operator, horovodjob
  manifests/  the operator without Helm, in one file or for kubectl apply -k
  docs/       air-gapped.md: every step, with Helm or kubectl, with or without a registry of your own

1. sha256sum --check SHA256SUMS
2. On each node:  for image in images/*.tar; do ctr --namespace=k8s.io images import "$image"; done
3. helm install horovodjob-operator charts/horovodjob-operator-{version}.tgz \\
        --namespace horovodjob-system --create-namespace
   or: kubectl apply --server-side -f manifests/horovodjob-{version}.yaml
"""


def write_air_gapped_archive(dist: Path, root: Path, version: str, images: list[str]) -> Path:
    """Write the archive from what is in `dist`; same parts, same bytes."""
    folder = f"horovodjob-{version}-air-gapped"
    parts: dict[str, Path | bytes] = {
        "INSTALL": INSTALL.format(version=version, images=" and ".join(images)).encode(),
        "LICENSE": root / "LICENSE",
        "docs/air-gapped.md": root / "docs" / "air-gapped.md",
    }
    for name, patterns in CONTENTS.items():
        parts |= {f"{name}/{path.name}": path for pattern in patterns for path in sorted(dist.glob(pattern))}
    parts["SHA256SUMS"] = "".join(f"{_sum(content)}  {name}\n" for name, content in sorted(parts.items())).encode()
    target = dist / f"{folder}.tar"
    with target.open("wb") as file:
        write_tar(file, {f"{folder}/{name}": content for name, content in parts.items()})
    return target


def _sum(content: Path | bytes) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else sha256(content)
