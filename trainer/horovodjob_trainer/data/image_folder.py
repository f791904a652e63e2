"""Pictures in one folder per class."""

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
from horovodjob_trainer.data.download import reason
from horovodjob_trainer.data.example_reader import decoded, rows_read
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.data.train_test_split import split_rows
from horovodjob_trainer.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")


@dataclass(frozen=True, eq=False)
class PictureFiles:
    """A source over picture files, decoded when they are read; labels are the places of the class names."""

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
        return rows_read(
            rows,
            lambda row: (decoded(tf.io.read_file(tf.gather(files, row)), self.size), tf.gather(labels, row)),
            shape=self.shape,
        )

    def name(self, row: int) -> str:
        return self.files[row]

    def problem(self, row: int) -> str | None:
        return picture_problem(self.files[row], self.size)

    @cached_property
    def _tensors(self) -> tuple[Any, Any]:
        return eager_tensor([os.fsencode(file) for file in self.files]), eager_tensor(self.labels)


def picture_problem(file: str, size: int) -> str | None:
    """One sentence about a picture that cannot be read."""
    import tensorflow as tf

    try:
        content = Path(file).read_bytes()
        decoded(tf.constant(content), size)
    except OSError as error:
        return f"{file} cannot be read: {reason(error)}; give the job the right to read it, or delete it"
    except tf.errors.OpError:
        what = "it is no whole JPEG, PNG, BMP or GIF picture" if content else "it is empty"
        return f"{file} cannot be read: {what}; replace or delete it"
    return None


def image_folder(path: Path, *, size: int, share: float, seed: int) -> Dataset:
    """Pictures below `path`: in train/CLASS and test/CLASS, or in CLASS alone, of which a share is for the test.

    Raises DataError with one sentence.
    """
    folder = path / "train" if _class_folders(path / "train", must_exist=False) else path
    names = tuple(_class_folders(folder))
    if len(names) < 2:
        raise DataError(
            f"{folder} holds {'one folder' if names else 'no folders'} with pictures, and there has to be one for "
            "each of at least two classes; sort the pictures into folders named after their classes"
        )
    train = _part(folder, names, size, root=path)
    _refuse_empty(folder, train)
    if folder != path and (path / "test").is_dir():
        return Dataset(train, _test_part(path / "test", folder, names, size, root=path), "images")
    kept, tested = split_rows(train.samples, share=share, seed=seed, labels=train.labels)
    return Dataset(_rows(train, kept), _rows(train, tested), "images")


def _test_part(test: Path, train: Path, names: Sequence[str], size: int, *, root: Path) -> PictureFiles:
    tested = _class_folders(test)
    for name in tested:
        if name not in names:
            raise DataError(f"{test / name} is a class that {train} has not; add pictures there or delete the folder")
    part = _part(test, names, size, root=root, only=tested)
    if not part.samples:
        raise DataError(f"{test} holds no pictures; fill it, or delete it and a share of {train} is kept for the test")
    return part


def _part(
    folder: Path, names: Sequence[str], size: int, *, root: Path, only: Sequence[str] | None = None
) -> PictureFiles:
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = sorted(pictures_below(folder / name)) if only is None or name in only else []
        files += found
        labels += [label] * len(found)
    return PictureFiles(files, np.array(labels, dtype=np.int64), names, size, str(root))


def _rows(source: PictureFiles, rows: npt.NDArray[np.int64]) -> PictureFiles:
    files = [source.files[row] for row in rows]
    return PictureFiles(files, source.labels[rows], source.class_names, source.size, source.root)


def _refuse_empty(folder: Path, part: PictureFiles) -> None:
    counts = np.bincount(part.labels, minlength=len(part.class_names))
    for name, count in zip(part.class_names, counts, strict=True):
        if not count:
            raise DataError(f"{folder / name} holds no pictures ({', '.join(ENDINGS)}); fill it or delete it")


def _class_folders(folder: Path, *, must_exist: bool = True) -> list[str]:
    """Names of the folders in a folder, sorted as text: the place of a name is the label of its class."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
            found = [entry for entry in found if entry.name != "lost+found"]  # at the root of a volume
    except OSError as error:
        if not must_exist:
            return []
        raise DataError(f"{folder} cannot be read: {reason(error)}; give the folder of the pictures") from error
    names = sorted(entry.name for entry in found if entry.is_dir())
    loose = sorted(entry.name for entry in found if _is_picture(entry.name) and entry.is_file())
    if names and loose:
        raise DataError(f"{folder / loose[0]} is in no class folder; move it to one or delete it")
    return names


def pictures_below(folder: Path) -> Iterator[str]:
    """Files of pictures in a folder and its folders; hidden ones are left out and links are followed, once each."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {reason(error)}; give the job the right to read it")

    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link to a folder above it
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if _is_picture(name):
                yield os.path.join(place, name)


def _is_picture(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(ENDINGS)
