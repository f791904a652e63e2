"""Images in one directory per class."""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.indexes.image_index import is_image, list_folders
from horovodjob_trainer.data.order import Steps, split_rows
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.reading.image_decoding import central_square, decoding_problem, random_crop
from horovodjob_trainer.data.reading.image_pixels import SUFFIXES
from horovodjob_trainer.data.reading.read_ahead import READERS, read_ahead
from horovodjob_trainer.data.source import DamagedExamples, Dataset
from horovodjob_trainer.errors import DataError, error_reason
from horovodjob_trainer.launch import hostname

# A changed list of files is different data, with which an unfinished run resumes only on request.
REMOVE = "delete it (an unfinished training then needs --resume continue)"


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """A source over image files, which are decoded when they are read. A label is the index of a class name."""

    files: Sequence[str]
    labels: npt.NDArray[np.int64]
    class_names: Sequence[str]
    size: int
    root: str
    central_share: float = 1.0  # side of the central square, as a share of the shorter side, except in training
    exif: bool = True  # whether images are turned to their EXIF orientation
    damaged: DamagedExamples | None = None  # replaces images that cannot be read, instead of an error
    images, readers = True, READERS

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
        prefix = os.path.join(self.root, "")
        names = "\n".join(file.removeprefix(prefix) for file in self.files)
        return f"{self.samples}x{self.shape} {zlib.crc32(names.encode('utf-8', 'surrogateescape')):08x}"

    def batches(self, rows: Any, *, batch: int, threads: int) -> Any:
        decode = central_square(self.size, self.central_share, exif=self.exif)
        return read_ahead(rows, self, decode, batch=batch, threads=threads)

    def training_batches(self, steps: Steps, *, threads: int, crop: bool = False) -> Any:
        square = central_square(self.size, exif=self.exif)
        decode = random_crop(self.size, steps.seed, exif=self.exif) if crop else square
        return read_ahead(steps.rows(self.samples), self, decode, batch=steps.batch, threads=threads)

    def content(self, row: int) -> tuple[bytes, int]:
        """Content of the file of this example, and its label. Raises OSError."""
        return Path(self.files[row]).read_bytes(), int(self.labels[row])

    def name(self, row: int) -> str:
        return self.files[row]

    def read_error(self, row: int) -> str | None:
        return image_error(self.files[row], self.size)


def image_error(file: str, size: int) -> str | None:
    """One sentence if the image cannot be read, else None."""
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        return f"{file} cannot be read: {error_reason(error)}; give the job permission to read it, or {REMOVE}"
    if problem := decoding_problem(size, content):
        return f"{file} cannot be read: {problem}; replace it, or {REMOVE}"
    return None


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of the images in the class folders of both parts, in the order of the classes. `folder` has the train part.

    A class that the test part does not have is absent from `test`. Without a test part, `test` is None.
    """

    folder: str
    train: dict[str, list[str]]
    test: dict[str, list[str]] | None


def image_folder(path: Path, *, size: int, share: float, seed: int, output: Path | None, ranks: Ranks) -> Dataset:
    """Images below `path` in train/CLASS and test/CLASS, or only in CLASS; a share of these is for testing.

    Rank 0 lists the images. Raises DataError with one sentence.
    """
    listing = ranks.call_on_first(lambda: _list_images(path, output, ranks))
    if ranks.rank and ranks.is_first_of_node:
        _check_node(path, listing)
    train = _part(path, listing.folder, listing.train, tuple(listing.train), size)
    if listing.test is not None:
        return Dataset(train, _part(path, "test", listing.test, train.class_names, size), "images")
    train_rows, test_rows = split_rows(train.samples, share=share, seed=seed, labels=train.labels)
    return Dataset(_select(train, train_rows), _select(train, test_rows), "images")


def _list_images(path: Path, output: Path | None, ranks: Ranks) -> Listing:
    folder = "train" if _class_folders(path / "train", must_exist=False) else ""
    names = _class_folders(path / folder)
    if len(names) < 2:
        raise DataError(
            f"{path / folder} contains {'one folder' if names else 'no folders'} with images; at least two classes are "
            "required, each in a folder with its name"
        )
    has_test = folder and (path / "test").is_dir()
    test_names = _class_folders(path / "test") if has_test else []
    for name in test_names:
        if name not in names:
            raise DataError(
                f"{path / 'test' / name} is a class that {path / folder} does not have; add images there or delete the "
                "folder"
            )
    train_folders = {name: os.path.join(folder, name) for name in names}
    test_folders = {name: os.path.join("test", name) for name in test_names}
    trees = list_folders(path, [*train_folders.values(), *test_folders.values()], output=output, ranks=ranks)
    train = {name: trees[each] for name, each in train_folders.items()}
    for name, files in train.items():
        if not files:
            raise DataError(
                f"{path / folder / name} contains no images ({', '.join(SUFFIXES)}); add images or delete it"
            )
    test = {name: trees[each] for name, each in test_folders.items()}
    if has_test and not any(test.values()):
        raise DataError(
            f"{path / 'test'} contains no images; add images, or delete it to use a share of {path / folder} for "
            "testing"
        )
    return Listing(folder, train, test if has_test else None)


def _check_node(path: Path, listing: Listing) -> None:
    """Raise DataError if this node has other class folders, for example because its share is not mounted."""
    parts = [(listing.folder, listing.train)] + ([] if listing.test is None else [("test", listing.test)])
    for folder, files in parts:
        if _class_folders(path / folder, must_exist=False) != list(files):
            raise DataError(
                f"{path / folder} on {hostname()} has different class folders than on the node of rank 0: every node "
                "needs the same files below --data"
            )


def _part(path: Path, folder: str, listed: dict[str, list[str]], names: Sequence[str], size: int) -> ImageFiles:
    files: list[str] = []
    counts = []
    for name in names:
        prefix = os.path.join(path, folder, name, "")
        found = listed.get(name, [])
        files += [prefix + file for file in found]
        counts.append(len(found))
    return ImageFiles(files, np.repeat(np.arange(len(names)), counts), names, size, str(path))


def _select(source: ImageFiles, rows: npt.NDArray[np.int64]) -> ImageFiles:
    files = [source.files[row] for row in rows]
    return ImageFiles(files, source.labels[rows], source.class_names, source.size, source.root)


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
    loose = sorted(entry.name for entry in found if is_image(entry.name) and entry.is_file())
    if names and loose:
        raise DataError(f"{folder / loose[0]} is not in a class folder; move it to one or delete it")
    return names
