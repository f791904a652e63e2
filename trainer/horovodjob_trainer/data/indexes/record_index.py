"""The index of TFRecord files: the length of each record and the largest label. The ranks share the first reading."""

import os
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.indexes.index_file import (
    index_paths,
    modification_time,
    pack_strings,
    read_index,
    unpack_strings,
    write_index,
)
from horovodjob_trainer.data.ranks import Ranks
from horovodjob_trainer.data.reading.record_features import feature_keys, lengths_and_largest_labels
from horovodjob_trainer.errors import DataError, error_reason
from horovodjob_trainer.launch import hostname

HEADER_BYTES, FOOTER_BYTES = 12, 4  # length with its checksum; checksum of the content
GZIP, ZLIB = b"\x1f\x8b", (b"\x78\x01", b"\x78\x9c", b"\x78\xda")
PARALLEL_REQUESTS = 16  # to a file server, which answers each after a round trip
UNKNOWN = -1
MEMBERS = ("names", "sizes", "modified", "largest_labels", "counts", "lengths")


@dataclass(frozen=True, slots=True)
class FileIndex:
    """Size and modification time of a file, the length in bytes of each record with its frame, and the largest label.

    The largest label is UNKNOWN if no start has required it.
    """

    size: int
    modified: int
    lengths: npt.NDArray[np.int64]
    largest_label: int = UNKNOWN

    def is_current(self, other: "FileIndex", *, labels: bool) -> bool:
        """Whether it describes the file, whose size and time are those of `other`."""
        has_labels = self.largest_label != UNKNOWN or not len(self.lengths)
        return (self.size, self.modified) == (other.size, other.modified) and (has_labels or not labels)


def index_files(
    root: Path, names: Sequence[str], *, labels: bool, threads: int, output: Path | None, ranks: Ranks
) -> tuple[dict[str, FileIndex], tuple[str, str]]:
    """The index of each of these files below the root, and the names of the features. Raises DataError.

    With `labels`, it contains the largest label, for which the first start reads all records.
    """
    start = time.monotonic()
    paths = index_paths("tfrecord", root, output)
    files, keys = ranks.call_on_first(lambda: _known_files(root, names, paths, labels=labels, log=ranks.log))
    changed = sorted((name for name, index in files.items() if index.modified == UNKNOWN), key=lambda n: files[n].size)

    def index_own_files() -> dict[str, FileIndex]:
        if ranks.rank and ranks.is_first_of_node:
            _check_node(root, files)
        own = changed[ranks.rank :: ranks.size]  # of each size, so that all ranks read about as much
        return _index(root, own, keys if labels else None, threads)

    for part in ranks.call_on_each(index_own_files):
        files |= part
    count = sum(len(index.lengths) for index in files.values())
    source = f"{len(changed)} of {len(files)} files were read" if changed else "from the index"
    ranks.log(f"Counted {count} records in {time.monotonic() - start:.1f} s: {source}")
    if changed and ranks.rank == 0:
        write_index(paths, _arrays(files), ranks.log)
    return files, keys


def record_lengths(path: Path) -> npt.NDArray[np.int64]:
    """Length of each record with its frame. Reads only the headers, whose checksums TensorFlow checks.

    Raises DataError for a file that is truncated, damaged or compressed.
    """
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_reason(error)}; give the job permission to read it") from error
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # else the kernel reads the records too
        size = os.fstat(file).st_size
        lengths: list[int] = []
        offset = 0
        while offset < size:
            header = os.pread(file, HEADER_BYTES, offset)
            length = HEADER_BYTES + FOOTER_BYTES
            length += int(struct.unpack_from("<Q", header)[0]) if len(header) == HEADER_BYTES else size
            if offset + length > size:
                raise DataError(_format_error(path, os.pread(file, 2, 0), record=len(lengths), offset=offset))
            lengths.append(length)
            offset += length
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_reason(error)}; check the share") from error
    finally:
        os.close(file)
    return np.array(lengths, dtype=np.int64)


def _known_files(
    root: Path, names: Sequence[str], paths: Sequence[Path], *, labels: bool, log: Callable[[str], None]
) -> tuple[dict[str, FileIndex], tuple[str, str]]:
    """The index of each file, with the modification time UNKNOWN if it must be read, and the names of the features."""
    known = _read(paths, log)
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        found = dict(zip(names, pool.map(lambda name: _empty(root / name), names), strict=True))
    files = {
        name: known[name] if name in known and known[name].is_current(index, labels=labels)
        else FileIndex(index.size, UNKNOWN, index.lengths)
        for name, index in found.items()
    }  # fmt: skip
    first = next((name for name, index in found.items() if index.size), None)
    if first is None:
        raise DataError(f"{root / names[0]} and the other files contain no records; write them again")
    if files[first].modified == UNKNOWN:
        record_lengths(root / first)  # describes a compressed file better than TensorFlow
    return files, feature_keys(root / first)


def _empty(path: Path) -> FileIndex:
    status = _status(path)
    return FileIndex(status.st_size, status.st_mtime_ns, np.zeros(0, np.int64))


def _index(root: Path, names: Sequence[str], keys: tuple[str, str] | None, threads: int) -> dict[str, FileIndex]:
    """The index of each of these files; with `keys`, also the largest label."""
    paths = [root / name for name in names]
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        files = list(pool.map(_status, paths))
        if not names:
            return {}
        if keys is None:
            found = [(lengths, UNKNOWN) for lengths in pool.map(record_lengths, paths)]
        else:
            frame = HEADER_BYTES + FOOTER_BYTES
            found = [
                (lengths + frame, label)
                for lengths, label in lengths_and_largest_labels(paths, keys, threads, record_lengths)
            ]
    return {
        name: FileIndex(status.st_size, modification_time(status), lengths, label)
        for name, status, (lengths, label) in zip(names, files, found, strict=True)
    }


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error_reason(error)}; check the share") from error


def _check_node(root: Path, files: dict[str, FileIndex]) -> None:
    """Raise DataError if this node has other files, for example because its share lags."""
    for name, index in files.items():
        try:
            size = (root / name).stat().st_size
        except OSError:
            size = None
        if size != index.size:
            raise DataError(
                f"{root / name} has {index.size} bytes on the node of rank 0, and "
                f"{'is missing' if size is None else f'{size} bytes'} on {hostname()}: every node needs the same files "
                "below --data"
            )


def _format_error(path: Path, start: bytes, *, record: int, offset: int) -> str:
    if record == 0 and (start == GZIP or start in ZLIB):
        return f"{path} is compressed, which prevents random access; decompress it or write it without compression"
    return f"{path} is truncated or damaged in record {record}, at byte {offset}; copy or write it again"


def _read(paths: Sequence[Path], log: Callable[[str], None]) -> dict[str, FileIndex]:
    arrays = read_index(paths, MEMBERS, log)
    if arrays is None:
        return {}
    counts = arrays["counts"]
    try:
        names = unpack_strings(arrays["names"], len(counts))
        lengths = np.split(arrays["lengths"], np.cumsum(counts)[:-1])
        values = [arrays[name].tolist() for name in ("sizes", "modified", "largest_labels")]
        files = zip(names, *values, lengths, counts, strict=True)
        known = {name: FileIndex(size, time, part, label) for name, size, time, label, part, _ in files}
    except ValueError as error:
        log(f"Ignoring the index of the records, which is inconsistent: {error}")
        return {}
    return {name: index for name, index in known.items() if int(index.lengths.sum()) == index.size}


def _arrays(files: dict[str, FileIndex]) -> dict[str, Any]:
    indexes = files.values()
    return {
        "names": pack_strings(list(files)),
        "sizes": np.array([index.size for index in indexes], np.int64),
        "modified": np.array([index.modified for index in indexes], np.int64),
        "largest_labels": np.array([index.largest_label for index in indexes], np.int64),
        "counts": np.array([len(index.lengths) for index in indexes], np.int64),
        "lengths": np.concatenate([index.lengths for index in indexes]),
    }
