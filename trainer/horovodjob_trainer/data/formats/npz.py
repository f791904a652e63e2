"""Arrays in a .npz file, read into memory or, if they are not compressed, memory-mapped."""

import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from horovodjob_trainer.data.caching import memory
from horovodjob_trainer.data.formats.user_arrays import build_arrays, build_dataset, split_arrays
from horovodjob_trainer.data.order import Rows
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.errors import DataError, error_reason

LOCAL_HEADER_BYTES = 30
_npy: Any = np.lib.format
_NpzFile: Any = np.lib.npyio.NpzFile  # np.load takes any other file for pickled objects
EXAMPLES = ("x_train", "x_test", "x")
SPLIT_NAMES, UNSPLIT_NAMES = ("x_train", "y_train", "x_test", "y_test"), ("x", "y")


@dataclass(frozen=True, slots=True)
class Member:
    """An array in the file, as its header describes it."""

    entry: zipfile.ZipInfo
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    header_bytes: int

    @property
    def size_bytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class MemoryMappedArrays(Arrays):
    """Memory-mapped examples, which can be larger than the memory. `rows` are the rows in the file."""

    rows: Rows | None = None

    def select(self, rows: Rows) -> Self:
        return replace(self, labels=aligned_copy(self.labels[rows]), rows=rows)

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        def examples_at(selected: Rows) -> npt.NDArray[Any]:
            return self.examples[selected if self.rows is None else self.rows[selected]]

        examples = tf.numpy_function(examples_at, [rows], self.examples.dtype, stateful=False)
        return tf.ensure_shape(examples, (None, *self.shape)), tf.gather(self._tensors[1], rows)


def npz(request: Request, path: Path, *, budget: int) -> Dataset:
    """The data set in x_train, y_train, x_test and y_test of the file, or in x and y with a share for testing.

    Labels are always read into memory, examples only if they have at most `budget` bytes.
    Raises DataError with one sentence.
    """
    arrays = _arrays(path, (SPLIT_NAMES, UNSPLIT_NAMES), cache=request.cache, budget=budget)
    where = str(path)
    parts = [
        _build_part(arrays, names, where)
        for names in (SPLIT_NAMES[:2], SPLIT_NAMES[2:], UNSPLIT_NAMES)
        if names[0] in arrays
    ]
    if len(parts) == 1:
        return split_arrays(parts[0], request=request, where=where, name="npz")
    return build_dataset(parts[0], parts[1], where=where, name="npz")


def unlabelled_arrays(path: Path) -> Arrays:
    """The examples in x of the file, memory-mapped if possible, all with the label 0. Raises DataError."""
    x = _arrays(path, (("x",),), cache="none", budget=memory.budget_bytes(1))["x"]
    labels = np.zeros(len(x) if x.ndim else 0, np.int64)
    return _build_part({"x": x, "y": labels}, ("x", "y"), str(path))


def _arrays(path: Path, layouts: Sequence[tuple[str, ...]], *, cache: str, budget: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of the first layout that the file contains completely."""
    try:
        with path.open("rb") as stream, _NpzFile(stream) as file:
            members = {name: _member(file.zip, path, name) for name in _names(file.files, path, layouts)}
            maps = _maps_examples(path, [members[name] for name in members if name in EXAMPLES], cache, budget)
            return {
                name: _memory_map(path, member) if maps and name in EXAMPLES else aligned_copy(file[name])
                for name, member in members.items()
            }
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; give the .npz file with --data") from error
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise DataError(f"{path} cannot be read: {_error_text(error)}; write it with numpy.savez") from error


def _build_part(arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...], where: str) -> Arrays:
    x, y = names
    part = build_arrays(arrays[x], arrays[y], where=where, names=(x, y))
    arrays_class = MemoryMappedArrays if isinstance(arrays[x], np.memmap) else Arrays
    return arrays_class(part.examples, part.labels, part.classes)


def _names(present: Sequence[str], path: Path, layouts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    for names in layouts:
        if set(names) <= set(present):
            return names
    found = ", ".join(sorted(present)) or "nothing"
    raise DataError(f"{path} contains {found}; it must contain {' or '.join(', '.join(names) for names in layouts)}")


def _member(file: zipfile.ZipFile, path: Path, name: str) -> Member:
    entry = file.getinfo(f"{name}.npy")
    with file.open(entry) as stream:
        try:
            version = _npy.read_magic(stream)
            read_header = _npy.read_array_header_1_0 if version == (1, 0) else _npy.read_array_header_2_0
            shape, fortran, dtype = read_header(stream)
        except ValueError as error:
            raise DataError(
                f"{path}: {name} is not an array: {_error_text(error)}; write it with numpy.savez"
            ) from error
        if dtype.hasobject:
            raise DataError(f"{path}: {name} contains Python objects; use numbers")
        return Member(entry, shape, fortran, dtype, stream.tell())


def _maps_examples(path: Path, examples: Sequence[Member], cache: str, budget: int) -> bool:
    """Whether to memory-map the examples. Raises DataError if they neither fit into memory nor can be mapped."""
    needed = sum(member.size_bytes for member in examples)
    in_memory = cache == "memory" or (cache == "auto" and needed <= budget)
    is_mappable = all(member.entry.compress_type == zipfile.ZIP_STORED for member in examples)
    if needed > budget and (in_memory or not is_mappable):
        raise DataError(
            f"{path} needs {memory.format_bytes(needed)}, and the memory budget of this process is "
            f"{memory.format_bytes(budget)}; give the pod more memory, or write the file with numpy.savez, "
            "uncompressed, and use --cache auto"
        )
    return is_mappable and not in_memory


def _memory_map(path: Path, member: Member) -> npt.NDArray[Any]:
    """The array in the file itself. numpy maps only arrays in files of their own."""
    with path.open("rb") as file:  # the local header repeats the name and may have a different extra field
        file.seek(member.entry.header_offset)
        name, extra = struct.unpack("<26xHH", file.read(LOCAL_HEADER_BYTES))
    offset = member.entry.header_offset + LOCAL_HEADER_BYTES + name + extra + member.header_bytes
    return np.memmap(path, member.dtype, "r", offset, member.shape, "F" if member.fortran else "C")


def _error_text(error: Exception) -> str:
    return error_reason(error) or type(error).__name__
