"""Images in one directory per class."""

import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.arrays import eager_tensor
from horovodjob_trainer.data.download import error_reason
from horovodjob_trainer.data.example_reader import decode_image, read_rows
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.data.train_test_split import split_rows
from horovodjob_trainer.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """A source over image files, which are decoded when they are read. A label is the index of a class name."""

    files: Sequence[str]
    labels: npt.NDArray[np.int64]
    class_names: Sequence[str]
    size: int
    root: str
    keep: bool = False
    images = True

    @property
    def samples(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, self.size, 3)

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def fingerprint(self) -> str:
        names = "\n".join(os.path.relpath(file, self.root) for file in self.files)
        return f"{self.samples}x{self.shape} {zlib.crc32(names.encode('utf-8', 'surrogateescape')):08x}"

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        files, labels = self._tensors
        return read_rows(
            rows,
            lambda row: (decode_image(tf.io.read_file(tf.gather(files, row)), self.size), tf.gather(labels, row)),
            shape=self.shape,
        )

    def name(self, row: int) -> str:
        return self.files[row]

    def read_error(self, row: int) -> str | None:
        return image_error(self.files[row], self.size)

    @cached_property
    def _tensors(self) -> tuple[Any, Any]:
        return eager_tensor([os.fsencode(file) for file in self.files]), eager_tensor(self.labels)


def image_error(file: str, size: int) -> str | None:
    """One sentence if the image cannot be read, else None."""
    import tensorflow as tf

    try:
        content = Path(file).read_bytes()
        decode_image(tf.constant(content), size)
    except OSError as error:
        return f"{file} cannot be read: {error_reason(error)}; give the job permission to read it, or delete it"
    except tf.errors.OpError:
        problem = "it is not a complete JPEG, PNG, BMP or GIF image" if content else "it is empty"
        return f"{file} cannot be read: {problem}; replace or delete it"
    return None


def image_folder(path: Path, *, size: int, share: float, seed: int) -> Dataset:
    """Images below `path` in train/CLASS and test/CLASS, or only in CLASS; a share of these is for testing.

    Raises DataError with one sentence.
    """
    folder = path / "train" if _class_folders(path / "train", must_exist=False) else path
    names = tuple(_class_folders(folder))
    if len(names) < 2:
        raise DataError(
            f"{folder} contains {'one folder' if names else 'no folders'} with images; at least two classes are "
            "required, each in a folder with its name"
        )
    train = _part(folder, names, size, root=path)
    _check_not_empty(folder, train)
    if folder != path and (path / "test").is_dir():
        return Dataset(train, _test_part(path / "test", folder, names, size, root=path), "images")
    train_rows, test_rows = split_rows(train.samples, share=share, seed=seed, labels=train.labels)
    return Dataset(_select(train, train_rows), _select(train, test_rows), "images")


def _test_part(test: Path, train: Path, names: Sequence[str], size: int, *, root: Path) -> ImageFiles:
    test_names = _class_folders(test)
    for name in test_names:
        if name not in names:
            raise DataError(
                f"{test / name} is a class that {train} does not have; add images there or delete the folder"
            )
    part = _part(test, names, size, root=root, only=test_names)
    if not part.samples:
        raise DataError(f"{test} contains no images; add images, or delete it to use a share of {train} for testing")
    return part


def _part(
    folder: Path, names: Sequence[str], size: int, *, root: Path, only: Sequence[str] | None = None
) -> ImageFiles:
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = sorted(image_files(folder / name)) if only is None or name in only else []
        files += found
        labels += [label] * len(found)
    return ImageFiles(files, np.array(labels, dtype=np.int64), names, size, str(root))


def _select(source: ImageFiles, rows: npt.NDArray[np.int64]) -> ImageFiles:
    files = [source.files[row] for row in rows]
    return ImageFiles(files, source.labels[rows], source.class_names, source.size, source.root)


def _check_not_empty(folder: Path, part: ImageFiles) -> None:
    counts = np.bincount(part.labels, minlength=len(part.class_names))
    for name, count in zip(part.class_names, counts, strict=True):
        if not count:
            raise DataError(f"{folder / name} contains no images ({', '.join(SUFFIXES)}); add images or delete it")


def _class_folders(folder: Path, *, must_exist: bool = True) -> list[str]:
    """Names of the folders in a folder, sorted as text. The index of a name is the label of its class."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
            found = [entry for entry in found if entry.name != "lost+found"]  # at the root of a volume
    except OSError as error:
        if not must_exist:
            return []
        raise DataError(f"{folder} cannot be read: {error_reason(error)}; give the folder of the images") from error
    names = sorted(entry.name for entry in found if entry.is_dir())
    loose = sorted(entry.name for entry in found if _is_image(entry.name) and entry.is_file())
    if names and loose:
        raise DataError(f"{folder / loose[0]} is not in a class folder; move it to one or delete it")
    return names


def image_files(folder: Path) -> Iterator[str]:
    """Image files in a folder and its subfolders. Omits hidden files and follows each link once."""

    def raise_data_error(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error_reason(error)}; give the job permission to read it")

    seen: set[str] = set()
    for directory, folders, names in os.walk(folder, onerror=raise_data_error, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen:  # a link to a parent folder
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if _is_image(name):
                yield os.path.join(directory, name)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)
