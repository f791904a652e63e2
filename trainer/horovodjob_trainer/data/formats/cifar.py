"""CIFAR-10 and CIFAR-100 from the official archives or from others with the same layout."""

import gzip
import hashlib
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from horovodjob_trainer.data.arrays import Arrays
from horovodjob_trainer.data.formats import plain_pickle
from horovodjob_trainer.data.formats.download import download_file
from horovodjob_trainer.data.reading.aligned_memory import allocate_aligned
from horovodjob_trainer.data.request import ANY_SHA256
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import DataError, error_reason

SIDE, CHANNELS = 32, 3


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of an archive, and the URL and checksum of the official one."""

    name: str
    title: str
    url: str
    sha256: str
    classes: int
    train: tuple[str, ...]
    test: str
    labels: str
    meta: str
    names: str


CIFAR10 = Layout(
    name="cifar10",
    title="CIFAR-10",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    classes=10,
    train=tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6)),
    test="cifar-10-batches-py/test_batch",
    labels="labels",
    meta="cifar-10-batches-py/batches.meta",
    names="label_names",
)
CIFAR100 = Layout(
    name="cifar100",
    title="CIFAR-100",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    classes=100,
    train=("cifar-100-python/train",),
    test="cifar-100-python/test",
    labels="fine_labels",
    meta="cifar-100-python/meta",
    names="fine_label_names",
)
LAYOUTS = {layout.name: layout for layout in (CIFAR10, CIFAR100)}


def cifar(layout: Layout, *, archive: Path | None, url: str | None, sha256: str | None, directory: Path) -> Dataset:
    """The data set in the archive; without `archive`, it is downloaded to `directory` if the node does not have it."""
    checksum = sha256 or layout.sha256
    if archive is not None:
        return read_archive(archive, checksum, layout=layout, remedy="give another --archive")
    try:
        directory = directory.expanduser()
    except RuntimeError as error:
        raise DataError(f"no home directory for {directory}; use --data-dir") from error
    path = download_file(url or layout.url, checksum, directory)
    return read_archive(path, checksum, layout=layout, remedy="delete it to download it again")


def read_archive(path: Path, sha256: str, *, layout: Layout = CIFAR10, remedy: str) -> Dataset:
    """The data set in an archive of this layout, with any number of images.

    No file is extracted to the disk. The pickles in the archive may contain only arrays, lists and strings.
    """
    try:
        with path.open("rb") as file:
            if sha256 != ANY_SHA256 and (found := hashlib.file_digest(file, "sha256").hexdigest()) != sha256:
                raise DataError(f"{path} has SHA-256 {found} instead of {sha256}; {remedy}")
            file.seek(0)
            members = _members(file, layout)
        names = _class_names(members.get(layout.meta), layout)
        train = _split([members[name] for name in layout.train], layout, names)
        return Dataset(train, _split([members[layout.test]], layout, names), layout.name)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; {remedy}") from error
    except (OSError, EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read: {error_reason(error)}; {remedy}") from error
    except _LayoutError as error:
        raise DataError(f"{path} is not a {layout.title} archive: {error}; {remedy}") from error


class _LayoutError(Exception):
    pass


def _members(file: IO[bytes], layout: Layout) -> dict[str, Any]:
    needed = {*layout.train, layout.test}
    members: dict[str, Any] = {}
    with gzip.open(file) as unpacked:
        with tarfile.open(fileobj=unpacked, mode="r|") as archive:
            for member in archive:
                name = os.path.normpath(member.name)
                wanted = name in needed or name == layout.meta
                content = archive.extractfile(member) if wanted and member.isfile() else None
                if content is not None:
                    members[name] = _member(name, content, layout)
        while unpacked.read(1 << 20):  # reads the checksum, which is at the end
            pass
    if missing := sorted(needed - members.keys()):
        raise _LayoutError(f"it lacks {', '.join(missing)}")
    return members


def _member(name: str, content: IO[bytes], layout: Layout) -> Any:
    try:
        values = plain_pickle.load(content)
    except ValueError as error:
        raise _LayoutError(f"{name} is not a plain pickle: {error}") from error
    if not isinstance(values, dict):
        raise _LayoutError(f"{name} does not contain a dictionary")
    values = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in values.items()}
    return values if name == layout.meta else _batch(name, values, layout)


def _batch(name: str, values: dict[Any, Any], layout: Layout) -> tuple[Any, list[int]]:
    data, labels = values.get("data"), values.get(layout.labels)
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and isinstance(labels, list)):
        raise _LayoutError(f"{name} needs 'data' with bytes and a list '{layout.labels}'")
    width = SIDE * SIDE * CHANNELS
    if data.shape != (len(labels), width) or not labels:
        raise _LayoutError(f"{name} has data of shape {data.shape} for {len(labels)} labels, not rows of {width}")
    if not all(isinstance(label, int) and 0 <= label < layout.classes for label in labels):
        raise _LayoutError(f"{name} has labels outside 0 to {layout.classes - 1}")
    return data, labels


def _class_names(meta: dict[str, Any] | None, layout: Layout) -> tuple[str, ...] | None:
    names = meta.get(layout.names) if meta else None
    if not isinstance(names, list) or len(names) != layout.classes:
        return None
    return tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names)


def _split(batches: list[tuple[Any, list[int]]], layout: Layout, names: tuple[str, ...] | None) -> Arrays:
    labels = allocate_aligned((sum(len(part) for _, part in batches),), np.int64)
    images = allocate_aligned((len(labels), SIDE, SIDE, CHANNELS), np.uint8)
    start = 0
    for data, part in batches:
        end = start + len(part)
        images[start:end] = data.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
        labels[start:end] = part
        start = end
    return Arrays(images, labels, layout.classes, names)
