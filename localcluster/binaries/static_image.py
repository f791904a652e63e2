"""Container images of one static binary, and tar archives, without an image builder."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

NOBODY = 65532
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write_static_image(binary: Path, reference: str, archive: Path) -> None:
    """Write a docker-archive of the image `reference`, which runs `binary` as user 65532; reproducible."""
    layer = tar({binary.name: binary.read_bytes()}, mode=0o755)
    layer_name = f"{hashlib.sha256(layer).hexdigest()}.tar"
    configuration = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": [f"/{binary.name}"], "User": str(NOBODY), "Env": [PATH]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created_by": "static_image.py"}],
        }
    ).encode()
    configuration_name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": configuration_name, "RepoTags": [reference], "Layers": [layer_name]}]
    archive.write_bytes(
        tar(
            {
                "manifest.json": json.dumps(manifest).encode(),
                configuration_name: configuration,
                layer_name: layer,
            },
            mode=0o644,
        )
    )


def tar(files: dict[str, bytes], *, mode: int) -> bytes:
    """A tar archive of `files` by path, independent of time and user."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
