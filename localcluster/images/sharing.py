"""Images of one node for others: not another copy of their files, which would take disk and memory again.

A layer that containerd has unpacked does not change any more, and a container writes to a layer of its own. So one
directory can be a layer on many nodes. It has hard links to the files of the node where the layer was unpacked, whose
containerd may remove its own. A node's store has a link to the directory, and manifest and configuration of the image;
packed layers are needed only to unpack them.
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
from localcluster.network.namespace import run

BLOBS = "io.containerd.content.v1.content/blobs"


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of an image and what it stands for."""

    name: str
    media_type: str
    digest: str


@dataclass(frozen=True, slots=True)
class Layer:
    """An unpacked layer; its id stands for all below it as well, of which `below` is the next."""

    chain_id: str
    below: str
    directory: Path


@dataclass(frozen=True, slots=True)
class Image:
    """What a node needs of an image: its small blobs by digest, and its layers, the lowest first."""

    reference: Reference
    blobs: dict[str, bytes]
    layers: list[Layer]


def share(source: ImageStore, targets: Sequence[ImageStore]) -> None:
    """Give each of `targets` the images of `source` that it lacks."""
    wanted = references(source)
    missing = [wanted - references(target) for target in targets]
    images = {reference: image(source, reference) for reference in set[Reference]().union(*missing)}
    with ThreadPoolExecutor() as pool:
        list(pool.map(give, targets, [[images[reference] for reference in each] for each in missing]))


def references(store: ImageStore) -> set[Reference]:
    """All images, but for the names that containerd gives them itself."""
    rows = (line.split() for line in store.ctr("images", "ls").splitlines()[1:])
    return {Reference(*row[:3]) for row in rows if not row[0].startswith("sha256:")}


def image(store: ImageStore, reference: Reference) -> Image:
    blobs: dict[str, bytes] = {}
    layers: list[Layer] = []
    for configuration in configurations(store, reference.digest, blobs):
        if chain := chain_ids(configuration["rootfs"].get("diff_ids", [])):
            directories = layer_directories(store, chain[-1])
            layers += map(Layer, chain, ["", *chain], map(partial(shared, store), chain, directories))
    return Image(reference, blobs, layers)


def configurations(store: ImageStore, digest: str, blobs: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """The configuration of each platform that is there of the image; fills `blobs` with all that was read."""
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
    """What containerd calls unpacked layers."""
    chain: list[str] = []
    for diff_id in diff_ids:
        below = f"{chain[-1]} {diff_id}".encode() if chain else b""
        chain.append(f"sha256:{hashlib.sha256(below).hexdigest()}" if chain else diff_id)
    return chain


def layer_directories(store: ImageStore, chain_id: str) -> list[Path]:
    """Where the layer and all below it are unpacked, the lowest first."""
    key = f"view-{os.getpid()}"
    mount = json.loads(store.ctr("snapshots", "view", "--mounts", key, chain_id))[0]
    with contextlib.suppress(ClusterError):  # containerd removes what nothing refers to
        store.ctr("snapshots", "rm", key)
    if mount["Type"] == "bind":
        return [Path(mount["Source"])]
    return [Path(path) for path in reversed(option(mount, "lowerdir").split(":"))]


def shared(store: ImageStore, chain_id: str, directory: Path) -> Path:
    """The layer in this directory where all nodes of the cluster find it."""
    place = store.node.cluster.shared_layers / chain_id.rpartition(":")[2]
    if not place.exists():
        fresh = place.with_name(f".{place.name}-{os.getpid()}")
        fresh.mkdir(parents=True)
        run("cp", "--archive", "--link", f"{directory}/.", str(fresh))
        fresh.rename(place)
    return place


def give(store: ImageStore, images: Sequence[Image]) -> None:
    """Add the images to a store."""
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
    key = f"{layer.chain_id}-{os.getpid()}"
    mount = json.loads(store.ctr("snapshots", "prepare", "--mounts", key, *filter(None, [layer.below])))[0]
    own = Path(mount["Source"] if mount["Type"] == "bind" else option(mount, "upperdir"))
    own.rmdir()
    own.symlink_to(layer.directory)
    store.ctr("snapshots", "commit", layer.chain_id, key)


def option(mount: dict[str, Any], name: str) -> str:
    """The value of one of the options of a mount."""
    return str(next(text.partition("=")[2] for text in mount["Options"] if text.startswith(f"{name}=")))


def archive(images: Sequence[Image]) -> bytes:
    """An OCI archive without layers."""
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
