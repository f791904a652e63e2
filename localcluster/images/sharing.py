"""Shares the images of one node with others without a copy of their files, which would need disk and memory.

An unpacked layer never changes, because a container writes to a layer of its own. So one directory can be a layer on
all nodes. It contains hard links to the files of the node that has unpacked the layer, because the containerd of that
node may remove them. The store of another node has a symbolic link to the directory, and the manifest and configuration
of the image. It does not have the packed layers, which are needed only to unpack them.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from localcluster.binaries.static_image import tar
from localcluster.errors import ClusterError
from localcluster.images.store import ImageStore
from localcluster.processes import run

BLOBS = "io.containerd.content.v1.content/blobs"


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image, and its descriptor."""

    name: str
    media_type: str
    digest: str


@dataclass(frozen=True, slots=True)
class Layer:
    """An unpacked layer. Its chain id identifies it and all layers below it; `parent` is that of the layer below."""

    chain_id: str
    parent: str
    directory: Path


@dataclass(frozen=True, slots=True)
class Image:
    """The parts of an image that a node needs: small blobs by digest, and layers, the lowest first."""

    reference: Reference
    blobs: dict[str, bytes]
    layers: list[Layer]


def share(source: ImageStore, targets: Sequence[ImageStore]) -> None:
    """Add to each target the images of `source` that it does not have. Raises ClusterError."""
    wanted = references(source)
    missing = [wanted - references(target) for target in targets]
    images = {reference: read_image(source, reference) for reference in set[Reference]().union(*missing)}
    with ThreadPoolExecutor() as pool:
        list(pool.map(add_images, targets, [[images[reference] for reference in each] for each in missing]))


def references(store: ImageStore) -> set[Reference]:
    """The references of all images, without the names that containerd creates itself."""
    rows = (line.split() for line in store.ctr("images", "ls").splitlines()[1:])
    return {Reference(*row[:3]) for row in rows if not row[0].startswith("sha256:")}


def read_image(store: ImageStore, reference: Reference) -> Image:
    """Read an image from a store, and put its layers where all nodes find them."""
    blobs: dict[str, bytes] = {}
    layers: list[Layer] = []
    for configuration in configurations(store, reference.digest, blobs):
        if chain := chain_ids(configuration["rootfs"].get("diff_ids", [])):
            directories = layer_directories(store, chain[-1])
            layers += map(Layer, chain, ["", *chain], map(partial(share_layer, store), chain, directories))
    return Image(reference, blobs, layers)


def configurations(store: ImageStore, digest: str, blobs: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """The configuration of each platform of an image that the store has; adds what it reads to `blobs`."""
    path = store.node.image_store / BLOBS / digest.replace(":", "/")
    if not path.exists():
        return
    blobs[digest] = path.read_bytes()
    document = json.loads(blobs[digest])
    if "rootfs" in document:
        yield document
        return
    for child in (*document.get("manifests", ()), *filter(None, [document.get("config")])):
        yield from configurations(store, child["digest"], blobs)


def chain_ids(diff_ids: Sequence[str]) -> list[str]:
    """The chain ids of layers, by which containerd names them after they are unpacked."""
    chain: list[str] = []
    for diff_id in diff_ids:
        pair = f"{chain[-1]} {diff_id}".encode() if chain else b""
        chain.append(f"sha256:{hashlib.sha256(pair).hexdigest()}" if chain else diff_id)
    return chain


def layer_directories(store: ImageStore, chain_id: str) -> list[Path]:
    """The directories of a layer and all below it, the lowest first."""
    key = f"view-{os.getpid()}"
    mount = json.loads(store.ctr("snapshots", "view", "--mounts", key, chain_id))[0]
    with contextlib.suppress(ClusterError):  # containerd may have removed it, since nothing refers to it
        store.ctr("snapshots", "rm", key)
    if mount["Type"] == "bind":
        return [Path(mount["Source"])]
    return [Path(path) for path in reversed(mount_option(mount, "lowerdir").split(":"))]


def share_layer(store: ImageStore, chain_id: str, directory: Path) -> Path:
    """Create the shared directory of a layer, with hard links to the files of `directory`, unless it exists."""
    place = store.node.cluster.shared_layers / chain_id.rpartition(":")[2]
    if not place.exists():
        fresh = place.with_name(f".{place.name}-{os.getpid()}")
        fresh.mkdir(parents=True)
        run("cp", "--archive", "--link", f"{directory}/.", str(fresh))
        fresh.rename(place)
    return place


def add_images(store: ImageStore, images: Sequence[Image]) -> None:
    """Add images to a store."""
    if not images:
        return
    present = {line.split()[0] for line in store.ctr("snapshots", "ls").splitlines()[1:]}
    for one in images:
        for layer in one.layers:
            if layer.chain_id not in present:
                add_layer(store, layer)
                present.add(layer.chain_id)
    store.ctr("images", "import", "--no-unpack", "-", stdin=archive(images))


def add_layer(store: ImageStore, layer: Layer) -> None:
    """Add a layer to a store, as a symbolic link to its shared directory."""
    key = f"{layer.chain_id}-{os.getpid()}"
    mount = json.loads(store.ctr("snapshots", "prepare", "--mounts", key, *filter(None, [layer.parent])))[0]
    own = Path(mount["Source"] if mount["Type"] == "bind" else mount_option(mount, "upperdir"))
    own.rmdir()
    own.symlink_to(layer.directory)
    store.ctr("snapshots", "commit", layer.chain_id, key)


def mount_option(mount: dict[str, Any], name: str) -> str:
    """The value of an option of a mount."""
    return str(next(text.partition("=")[2] for text in mount["Options"] if text.startswith(f"{name}=")))


def archive(images: Sequence[Image]) -> bytes:
    """An OCI archive of images without their layers."""
    blobs = {digest: content for one in images for digest, content in one.blobs.items()}
    manifests = [
        {
            "mediaType": one.reference.media_type,
            "digest": one.reference.digest,
            "size": len(one.blobs[one.reference.digest]),
            "annotations": {"io.containerd.image.name": one.reference.name},
        }
        for one in images
    ]
    files = {f"blobs/{digest.replace(':', '/')}": content for digest, content in blobs.items()}
    files["oci-layout"] = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    return tar(files, mode=0o644)
