"""Data sets of images in the TFRecord files of a folder."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from horovodjob_trainer.data.caching.memory import format_bytes
from horovodjob_trainer.data.formats.records import NAMES_FILE, Records
from horovodjob_trainer.data.indexes.record_index import index_files
from horovodjob_trainer.data.order import Rows, Window, split_rows
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import DataError

SMALL_BYTES = 1_000_000_000
WINDOW_BYTES, WINDOW_EXAMPLES = 256_000_000, (512, 16_384)


def tfrecord(request: Request, path: Path, *, ranks: Ranks) -> Dataset:
    """The data set in train*.tfrecord* and test*.tfrecord* in this folder. Without the latter, a share is for testing.

    The ranks share the first reading of the files. Raises DataError with one sentence.
    """
    train_names, test_names, class_names = ranks.call_on_first(lambda: _contents(path))
    every, keys = index_files(
        path,
        [*train_names, *test_names],
        labels=class_names is None,
        threads=request.threads,
        output=request.output_directory,
        ranks=ranks,
    )
    classes = len(class_names) if class_names else max(index.largest_label for index in every.values()) + 1

    def records(names: Sequence[str]) -> Records:
        indexes = [every[name].lengths for name in names]
        counts, lengths = [len(index) for index in indexes], np.concatenate(indexes)
        if not len(lengths):
            raise DataError(f"{path / names[0]} and the other files contain no records; write them again")
        file_indexes = np.repeat(np.arange(len(names)), counts)
        numbers = np.concatenate([np.arange(count) for count in counts])
        offsets = np.concatenate([np.cumsum(index) - index for index in indexes])
        files = [str(path / name) for name in names]
        return Records(files, file_indexes, numbers, offsets, lengths, keys, request.image_size, classes, class_names)

    train = records(train_names)
    if test_names:
        test = records(test_names)
    else:
        train_rows, test_rows = split_rows(train.samples, share=request.validation_share, seed=request.seed)
        train, test = _select(train, train_rows), _select(train, test_rows)
    window, remark = _window(train, request)
    ranks.log(remark)
    return Dataset(train, test, "tfrecord", window=window)


def _window(train: Records, request: Request) -> tuple[Window | None, str]:
    """The window of the order of the examples, None for the exact order, and why. It depends only on data and settings.

    An order that depended on the memory of the node would differ between two attempts.
    """
    size = int(train.lengths.sum())
    shuffle, reason = request.shuffle, ""
    if shuffle == "auto":
        is_small = size <= SMALL_BYTES
        shuffle = "exact" if is_small else "window"
        reason = f", the default for {'up to' if is_small else 'more than'} {format_bytes(SMALL_BYTES)} of records"
    if shuffle == "exact":
        return None, f"Records are shuffled in exact order{reason}"
    least, most = WINDOW_EXAMPLES
    default = min(max(WINDOW_BYTES * train.samples // size, least), most)
    shards = np.bincount(train.file_indexes, minlength=len(train.files))
    window = Window(tuple(shards.tolist()), request.shuffle_window or default)
    return window, f"Records are shuffled in windows of {window.examples} for each rank{reason}"


def _select(source: Records, rows: Rows) -> Records:
    parts = {name: getattr(source, name)[rows] for name in ("file_indexes", "numbers", "offsets", "lengths")}
    return replace(source, **parts)


def _contents(folder: Path) -> tuple[list[str], list[str], tuple[str, ...] | None]:
    """The names of the training files, of the test files and of the classes."""
    train_names, test_names = _files(folder, "train"), _files(folder, "test")
    if not train_names:
        raise DataError(f"{folder} has no train*.tfrecord* files; set --data to the folder that contains them")
    return train_names, test_names, _class_names(folder)


def _files(folder: Path, part: str) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}; give the folder of the TFRecord files") from error
    found = [name for name in names if name.startswith(part) and ".tfrecord" in name]
    for name in found:
        numbered = re.search(r"-(\d+)-of-(\d+)", name)
        if numbered is not None and len(found) != int(numbered[2]):
            raise DataError(
                f"{folder / name} is one of {int(numbered[2])} files, of which {len(found)} exist; copy all of them"
            )
    return found


def _class_names(folder: Path) -> tuple[str, ...] | None:
    try:
        text = (folder / NAMES_FILE).read_text("utf-8-sig")  # editors of Windows begin it with a mark
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / NAMES_FILE} cannot be read: {error}; write one class name a line") from error
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(names) < 2:
        raise DataError(f"{folder / NAMES_FILE} names fewer than two classes; write one class name a line")
    return names
