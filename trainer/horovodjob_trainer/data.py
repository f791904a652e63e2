"""Data sets in memory: where they come from, whether they are whole, and which rows a step reads."""

import fcntl
import gzip
import hashlib
import os
import pickle
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.configuration import ANY_SHA256, Configuration, DatasetName
from horovodjob_trainer.errors import DataError

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]

SIDE, CHANNELS, CLASSES = 32, 3, 10
DOWNLOAD_TIMEOUT_SECONDS = 60
TRAIN_MEMBERS = tuple(f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6))
TEST_MEMBER = "cifar-10-batches-py/test_batch"


@dataclass(frozen=True, slots=True)
class Split:
    """Images of shape (n, 32, 32, 3) and their n labels."""

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def shard(self, rank: int, size: int) -> "Split":
        """Every size-th image, from `rank` on: the shards of all ranks are the split, each image once."""
        return Split(self.images[rank::size], self.labels[rank::size])


@dataclass(frozen=True, slots=True)
class Dataset:
    train: Split
    test: Split


def dataset(configuration: Configuration) -> Dataset:
    """The data set of this run; downloads it where the node has none."""
    if configuration.dataset is DatasetName.DIGITS:
        return digits()
    if configuration.archive is not None:
        return read_archive(configuration.archive, configuration.archive_sha256, remedy="give another --archive")
    directory = configuration.data_directory
    try:
        directory = directory.expanduser()
    except RuntimeError as error:
        raise DataError(f"no home directory for {directory}; give --data-dir") from error
    path = downloaded(configuration.archive_url, configuration.archive_sha256, directory)
    return read_archive(path, configuration.archive_sha256, remedy="delete it and it is downloaded again")


def digits() -> Dataset:
    """scikit-learn's 1,797 handwritten digits, four times as wide and in three equal channels.

    The split is always the same and keeps the shares of the ten classes: 1,437 for training, 360 for the test.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bundle = load_digits()
    grey = np.rint(bundle.images * (255 / 16)).astype(np.uint8)
    images = np.repeat(grey.repeat(4, axis=1).repeat(4, axis=2)[..., np.newaxis], CHANNELS, axis=3)
    labels = bundle.target.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=360, stratify=labels, random_state=0)
    return Dataset(Split(images[train], labels[train]), Split(images[test], labels[test]))


def rows_of_step(step: int, *, samples: int, batch: int, rank: int, size: int, seed: int) -> Rows:
    """Rows that `rank` trains on in the job's step number `step`, counted from 0 over all epochs.

    The job reads one endless sequence, a new permutation of all rows after the other, and the ranks take turns
    in it. So no row is dropped, no two ranks read the same row of a permutation, and the rows that N ranks read
    in a step are those that one rank with N times the batch would read.
    """
    first = (step * size + rank) * batch
    position = np.arange(first, first + batch)
    rows = np.empty(batch, dtype=np.int64)
    for number in np.unique(position // samples):
        inside = position // samples == number
        rows[inside] = _permutation(samples, seed, int(number))[position[inside] % samples]
    return rows


_kept: dict[tuple[int, int, int], Rows] = {}


def _permutation(samples: int, seed: int, number: int) -> Rows:
    key = (samples, seed, number)
    if key not in _kept:
        while len(_kept) >= 4:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = np.random.default_rng((seed, number)).permutation(samples)
    return _kept[key]


def downloaded(url: str, sha256: str, directory: Path) -> Path:
    """The archive in `directory`, fetched by whichever process of the node comes first while the others wait."""
    target = directory / f"cifar-10-python-{sha256[:16]}.tar.gz"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / f".{target.name}.lock"):
            if not target.exists():
                _download(url, sha256, target)
    except (OSError, HTTPException) as error:  # URLError and time-outs are OSErrors
        raise DataError(
            f"cannot download {url} to {target}: {_reason(error)}; put the archive there or give --archive"
        ) from error
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        with suppress(OSError):  # a share without locks: each process downloads, and the rename decides
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(url: str, sha256: str, target: Path) -> None:
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_SECONDS) as response:
                while chunk := response.read(1 << 20):
                    digest.update(chunk)
                    file.write(chunk)
            if digest.hexdigest() != sha256:
                raise DataError(
                    f"the download of {url} has SHA-256 {digest.hexdigest()} instead of {sha256}; "
                    "try again, or give --archive"
                )
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise


def read_archive(path: Path, sha256: str, *, remedy: str) -> Dataset:
    """CIFAR-10 from its official archive, or from another of the same layout with any number of images.

    Nothing is extracted to the disk, and the pickles inside may hold arrays, lists and texts only.
    """
    try:
        with path.open("rb") as file:
            if sha256 != ANY_SHA256 and (found := hashlib.file_digest(file, "sha256").hexdigest()) != sha256:
                raise DataError(f"{path} has SHA-256 {found} instead of {sha256}; {remedy}")
            file.seek(0)
            splits = _members(file)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; {remedy}") from error
    except (OSError, EOFError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        raise DataError(f"{path} cannot be read: {_reason(error)}; {remedy}") from error
    except _LayoutError as error:
        raise DataError(f"{path} is no CIFAR-10 archive: {error}; {remedy}") from error
    train = [splits[name] for name in TRAIN_MEMBERS]
    return Dataset(
        Split(np.concatenate([part.images for part in train]), np.concatenate([part.labels for part in train])),
        splits[TEST_MEMBER],
    )


class _LayoutError(Exception):
    pass


def _members(file: IO[bytes]) -> dict[str, Split]:
    wanted = {*TRAIN_MEMBERS, TEST_MEMBER}
    splits: dict[str, Split] = {}
    with gzip.open(file) as unpacked:
        with tarfile.open(fileobj=unpacked, mode="r|") as archive:
            for member in archive:
                name = os.path.normpath(member.name)
                content = archive.extractfile(member) if name in wanted and member.isfile() else None
                if content is not None:
                    splits[name] = _split(name, content)
        while unpacked.read(1 << 20):  # the checksum of the content stands at its end
            pass
    if missing := sorted(wanted - splits.keys()):
        raise _LayoutError(f"it lacks {', '.join(missing)}")
    return splits


def _split(name: str, content: IO[bytes]) -> Split:
    try:
        batch = _BatchUnpickler(content, encoding="bytes").load()
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise _LayoutError(f"{name} is no plain pickle: {_reason(error)}") from error
    if not isinstance(batch, dict):
        raise _LayoutError(f"{name} holds no dictionary")
    data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and isinstance(labels, list)):
        raise _LayoutError(f"{name} has no 'data' of bytes and list of 'labels'")
    width = SIDE * SIDE * CHANNELS
    if data.shape != (len(labels), width) or not labels:
        raise _LayoutError(f"{name} has data of shape {data.shape} for {len(labels)} labels, not rows of {width}")
    if not all(isinstance(label, int) and 0 <= label < CLASSES for label in labels):
        raise _LayoutError(f"{name} has labels outside 0 to {CLASSES - 1}")
    images = data.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(images), np.array(labels, dtype=np.int64))


class _BatchUnpickler(pickle.Unpickler):
    """Unpickles what numpy arrays are made of, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _empty_array
        if name == "_frombuffer" and module in ("numpy.core.numeric", "numpy._core.numeric"):
            return _array
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _empty_array(subtype: type, shape: tuple[int, ...], dtype: bytes | str) -> npt.NDArray[Any]:
    if subtype is not np.ndarray or shape != (0,):
        raise pickle.UnpicklingError("it builds an array in an unknown way")
    return np.ndarray(shape, dtype="u1")  # the real shape and type follow as the array's state


def _array(buffer: Any, dtype: Any, shape: tuple[int, ...], order: str) -> npt.NDArray[Any]:
    """How numpy writes an array into a pickle of protocol 5."""
    if order not in ("C", "F"):
        raise pickle.UnpicklingError(f"it uses the order {order!r}")
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order="C" if order == "C" else "F")


def _latin1(text: str, encoding: str | bytes) -> bytes:
    """How Python 3 writes bytes into a pickle of protocol 2."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it uses the encoding {encoding!r}")
    return text.encode("latin1")


def _reason(error: BaseException) -> str:
    return " ".join(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error).split())
