"""Small archives with the layout of the official CIFAR-10 archive."""

import hashlib
import io
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

# The pickler in Python, whose methods can be overridden; typeshed declares only a part of it.
_PurePythonPickler: Any = pickle._Pickler


class _Python2Pickler(_PurePythonPickler):  # type: ignore[misc]
    """Pickles as Python 2 and numpy 1 did for the official archive."""

    def save_bytes(self, value: bytes) -> None:
        if len(value) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(value)]) + value)
        else:
            self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
        self.memoize(value)

    def save_global(self, value: Any, name: str | None = None) -> None:
        names = {"_reconstruct": "numpy.core.multiarray", "ndarray": "numpy", "dtype": "numpy"}
        self.write(f"c{names[value.__name__]}\n{value.__name__}\n".encode())
        self.memoize(value)

    def save_type(self, value: type) -> None:
        self.save_global(value)

    dispatch = _PurePythonPickler.dispatch | {
        bytes: save_bytes,
        type(len): save_global,
        type: save_type,
    }


def python2_pickle(value: object) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue()


def cifar_images(count: int, seed: int) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Images of ten classes that are easy to distinguish, flattened as in the official archive."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    images = random.integers(0, 60, (count, 3, 32, 32))
    for image, label in zip(images, labels, strict=True):
        image[label % 3, 3 * label : 3 * label + 4, :] += 190
    return images.reshape(count, -1).astype(np.uint8), [int(label) for label in labels]


def write_archive(path: Path, members: Mapping[str, bytes]) -> str:
    """Write a .tar.gz of these members and return its SHA-256."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cifar_members(rows: int) -> dict[str, bytes]:
    """The members of an archive with `rows` images in each of its six batches."""
    members = {"cifar-10-batches-py/batches.meta": python2_pickle({b"num_vis": 3072})}
    for seed, name in enumerate([*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]):
        data, labels = cifar_images(rows, seed)
        batch = {b"batch_label": name.encode(), b"data": data, b"labels": labels}
        members[f"cifar-10-batches-py/{name}"] = python2_pickle(batch)
    return members
