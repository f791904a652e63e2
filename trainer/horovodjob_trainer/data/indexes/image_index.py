"""The listing of an image folder, and its index: only folders that have changed are listed again."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from horovodjob_trainer.data.indexes.index_file import (
    index_paths,
    modification_time,
    pack_strings,
    read_index,
    unpack_strings,
    write_index,
)
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.reading.image_pixels import HEIF_SUFFIXES, SUFFIXES
from horovodjob_trainer.errors import DataError, error_reason

FORMAT = 2  # since it has the numbers of the other files
PARALLEL_REQUESTS = 16  # to a file server, which answers each after a round trip
NAMED_SUFFIXES = 5  # not all: a name such as `frame.0001` has its number as suffix
MEMBERS = ("folders", "directories", "modified", "files", "directory_counts", "file_counts", "others", "suffixes")


@dataclass(frozen=True, slots=True)
class Tree:
    """The images in a folder and its subfolders, with the modification time of each directory. Paths are relative.

    `others` has the numbers of the other files by their suffixes.
    """

    directories: list[str]
    modified: list[int]
    files: list[str]
    others: dict[str, int]

    def is_current(self, folder: Path) -> bool:
        """Whether no directory has changed. A file that is added, deleted or renamed changes its directory."""
        try:
            return self.modified == [os.stat(folder / name).st_mtime_ns for name in self.directories]
        except OSError:
            return False


def list_folders(root: Path, folders: Sequence[str], *, output: Path | None, ranks: Ranks) -> dict[str, list[str]]:
    """The sorted images in each of these folders below the root, relative to the folder, from the index if possible.

    Raises DataError.
    """
    start, log = time.monotonic(), ranks.log
    paths = index_paths("images", root, output)
    trees = _indexed_trees(paths, log)
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        known = [name for name in folders if name in trees]
        current = dict(zip(known, pool.map(lambda name: trees[name].is_current(root / name), known), strict=True))
        changed = [name for name in folders if not current.get(name)]
        if trees and changed:
            log(f"{len(changed)} of {len(folders)} image folders are new or have changed since their index was written")
        trees |= dict(zip(changed, pool.map(lambda name: list_tree(root / name), changed), strict=True))
    trees = {name: trees[name] for name in folders}
    count = sum(len(tree.files) for tree in trees.values())
    source = "from the index" if not changed else "from the folders"
    log(f"Listed {count} images in {time.monotonic() - start:.1f} s {source}")
    if text := other_files_text(trees.values()):
        ranks.note(text)
    if changed:
        write_index(paths, _arrays(trees), log, FORMAT)
    return {name: tree.files for name, tree in trees.items()}


def list_tree(folder: Path) -> Tree:
    """Images in a folder and its subfolders, sorted. Omits hidden files and follows each link once.

    Raises DataError.
    """
    tree = Tree([], [], [], {})
    others: Counter[str] = Counter()
    seen: set[str] = set()

    def visit(directory: str, real: str) -> None:
        if real in seen:  # a link to a parent folder
            return
        seen.add(real)
        path = os.path.join(folder, directory)
        modified = modification_time(os.stat(path))  # before the listing, so that a change after it is noticed
        with os.scandir(path) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
        folders = sorted((entry for entry in found if entry.is_dir()), key=lambda entry: entry.name)
        files = {entry.name for entry in found}.difference(entry.name for entry in folders)
        tree.files.extend(os.path.join(directory, name) for name in files if is_image(name))
        others.update(os.path.splitext(name)[1].lower() for name in files if not is_image(name))
        tree.directories.append(directory)
        tree.modified.append(modified)
        for entry in folders:
            target = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real, entry.name)
            visit(os.path.join(directory, entry.name), target)

    try:
        visit("", os.path.realpath(folder))
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be read: {error_reason(error)}; give the job permission to read it"
        ) from error
    tree.files.sort()
    tree.others.update(others)
    return tree


def other_files_text(trees: Iterable[Tree]) -> str:
    """One sentence that counts the files that are no images, empty if there are none."""
    listed, others = 0, Counter[str]()
    for tree in trees:
        listed += len(tree.files)
        others.update(tree.others)
    if not others:
        return ""
    named = others.most_common(NAMED_SUFFIXES)
    kinds = [f"{count} {suffix or 'without a suffix'}" for suffix, count in sorted(named)]
    if rest := others.total() - sum(count for _, count in named):
        kinds.append(f"{rest} with other suffixes")
    remedy = "; install the package pillow-heif to read .heic and .heif" if others.keys() & set(HEIF_SUFFIXES) else ""
    every = listed + others.total()
    return f"{listed} of {every} files listed: the others are no images that can be read ({', '.join(kinds)}){remedy}"


def is_image(name: str) -> bool:
    """Whether a file with this name is an image and is not hidden."""
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def _indexed_trees(paths: Sequence[Path], log: Callable[[str], None]) -> dict[str, Tree]:
    arrays = read_index(paths, MEMBERS, log, FORMAT)
    if arrays is None or arrays["suffixes"].tolist() != list(SUFFIXES):  # a package for more formats is new
        return {}
    directory_counts, file_counts = arrays["directory_counts"], arrays["file_counts"]
    try:
        folders = unpack_strings(arrays["folders"], len(file_counts))
        directories = unpack_strings(arrays["directories"], int(directory_counts.sum()))
        files = unpack_strings(arrays["files"], int(file_counts.sum()))
        others = [json.loads(text) for text in unpack_strings(arrays["others"], len(file_counts))]
        _check_names(directories, files)
    except ValueError as error:
        log(f"Ignoring the index of the images, which is inconsistent: {error}")
        return {}
    parts = zip(
        _split(directories, directory_counts),
        _split(arrays["modified"].tolist(), directory_counts),
        _split(files, file_counts),
        others,
        strict=True,
    )
    return {folder: Tree(*part) for folder, part in zip(folders, parts, strict=True)}


def _check_names(*names: Sequence[str]) -> None:
    """Raise ValueError if one is outside the folder: whoever may write an index beside the data chooses them."""
    for name in chain.from_iterable(names):
        if name.startswith("/") or (".." in name and ".." in name.split("/")):
            raise ValueError(f"{name!r} is not below the folder")


def _split(values: list[Any], counts: Any) -> list[list[Any]]:
    return [values[start:end] for start, end in pairwise([0, *np.cumsum(counts).tolist()])]


def _arrays(trees: dict[str, Tree]) -> dict[str, Any]:
    def joined(parts: Iterable[list[Any]]) -> list[Any]:
        return [value for part in parts for value in part]

    return {
        "folders": pack_strings(list(trees)),
        "directories": pack_strings(joined(tree.directories for tree in trees.values())),
        "modified": np.array(joined(tree.modified for tree in trees.values()), np.int64),
        "files": pack_strings(joined(tree.files for tree in trees.values())),
        "others": pack_strings([json.dumps(tree.others) for tree in trees.values()]),
        "suffixes": np.array(SUFFIXES),
        "directory_counts": np.array([len(tree.directories) for tree in trees.values()], np.int64),
        "file_counts": np.array([len(tree.files) for tree in trees.values()], np.int64),
    }
