"""Arrays in a .npz file, read into memory or, where they are not compressed, read in place."""

import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data import memory
from horovodjob_trainer.data.arrays import Arrays, aligned, aligned_copy
from horovodjob_trainer.data.download import reason
from horovodjob_trainer.data.request import Request
from horovodjob_trainer.data.sampling import Rows
from horovodjob_trainer.data.source import Dataset
from horovodjob_trainer.data.user_arrays import checked_pair, divided, joined
from horovodjob_trainer.errors import DataError

CHUNK_BYTES = 1 << 24
LOCAL_HEADER_BYTES = 30
_npy: Any = np.lib.format
SPLIT, WHOLE = ("x_train", "y_train", "x_test", "y_test"), ("x", "y")


@dataclass(frozen=True, slots=True)
class Member:
    """One array of the file: bytes before its values in its entry, and their place in the file if not compressed."""

    name: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    header: int
    start: int | None

    @property
    def size(self) -> int:
        """Bytes of its values."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Mapped(Arrays):
    """Examples read in place from a file, slower than memory and larger than it if need be; `rows` are its part."""

    rows: Rows | None = None

    def at(self, rows: Rows) -> Self:
        return replace(self, labels=aligned_copy(self.labels[rows]), rows=rows)

    def tensors(self, rows: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        def examples_at(chosen: Rows) -> npt.NDArray[Any]:
            return self.examples[chosen if self.rows is None else self.rows[chosen]]

        examples = tf.numpy_function(examples_at, [rows], self.examples.dtype, stateful=False)
        return tf.ensure_shape(examples, (None, *self.shape)), tf.gather(self._tensors[1], rows)


def npz(request: Request, path: Path, *, room: int) -> Dataset:
    """The data set in x_train, y_train, x_test, y_test of the file, or in x and y, of which a share is for the test.

    Labels are always read into memory; examples if they take at most `room` bytes there.
    Raises DataError with one sentence.
    """
    arrays = _arrays(path, (SPLIT, WHOLE), cache=request.cache, room=room)
    where = str(path)
    parts = [_pair(arrays, names, where) for names in (SPLIT[:2], SPLIT[2:], WHOLE) if names[0] in arrays]
    if len(parts) == 1:
        return divided(parts[0], request=request, where=where, name="npz")
    return joined(parts[0], parts[1], where=where, name="npz")


def examples_of(path: Path) -> Arrays:
    """The examples in x of the file, read in place if possible, all with the label 0. Raises DataError."""
    x = _arrays(path, (("x",),), cache="none", room=memory.room(1))["x"]
    labels = np.zeros(len(x) if x.ndim else 0, np.int64)
    return _pair({"x": x, "y": labels}, ("x", "y"), str(path))


def _arrays(path: Path, forms: Sequence[tuple[str, ...]], *, cache: str, room: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of the first form whose names are all in the file."""
    try:
        with zipfile.ZipFile(path) as file:
            members = {name: _member(file, path, name) for name in _names(file, path, forms)}
            read = _reader(file, path, members, cache, room)
            return {name: read(member) for name, member in members.items()}
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist; give the .npz file with --data") from error
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise DataError(f"{path} cannot be read: {_what(error)}; write it with numpy.savez") from error


def _pair(arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...], where: str) -> Arrays:
    x, y = names
    pair = checked_pair(arrays[x], arrays[y], where=where, names=(x, y))
    kind = Mapped if isinstance(arrays[x], np.memmap) else Arrays
    return kind(pair.examples, pair.labels, pair.classes)


def _names(file: zipfile.ZipFile, path: Path, forms: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    held = {name.removesuffix(".npy") for name in file.namelist()}
    for names in forms:
        if held.issuperset(names):
            return names
    found = ", ".join(sorted(held)) or "nothing"
    raise DataError(f"{path} holds {found}; it has to hold {' or '.join(', '.join(names) for names in forms)}")


def _member(file: zipfile.ZipFile, path: Path, name: str) -> Member:
    entry = file.getinfo(f"{name}.npy")
    with file.open(entry) as stream:
        try:
            version = _npy.read_magic(stream)
            read_header = _npy.read_array_header_1_0 if version == (1, 0) else _npy.read_array_header_2_0
            shape, fortran, dtype = read_header(stream)
        except ValueError as error:
            raise DataError(f"{path}: {name} is no array: {_what(error)}; write it with numpy.savez") from error
        if dtype.hasobject:
            raise DataError(f"{path}: {name} holds Python objects; give numbers")
        header = stream.tell()
    stored = entry.compress_type == zipfile.ZIP_STORED
    return Member(name, shape, fortran, dtype, header, _place(path, entry) + header if stored else None)


def _place(path: Path, entry: zipfile.ZipInfo) -> int:
    """Where the content of an entry begins; its own header repeats the name and may have another extra field."""
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        name, extra = struct.unpack("<26xHH", file.read(LOCAL_HEADER_BYTES))
    return int(entry.header_offset + LOCAL_HEADER_BYTES + name + extra)


def _reader(
    file: zipfile.ZipFile, path: Path, members: dict[str, Member], cache: str, room: int
) -> Callable[[Member], npt.NDArray[Any]]:
    examples = [member for name, member in members.items() if name.startswith("x")]
    needed = sum(member.size for member in examples)
    in_memory = cache == "memory" or (cache == "auto" and needed <= room)
    if needed > room and (in_memory or any(member.start is None for member in examples)):
        raise DataError(
            f"{path} needs {memory.in_words(needed)} and this process may take {memory.in_words(room)} for data; "
            "give the pod more memory, or write the file with numpy.savez, uncompressed, and use --cache auto"
        )

    def read(member: Member) -> npt.NDArray[Any]:
        if in_memory or member.start is None or not member.name.startswith("x") or not member.size:
            return _read(file, member)
        order: Any = "F" if member.fortran else "C"
        return np.memmap(path, member.dtype, "r", member.start, member.shape, order)

    return read


def _read(file: zipfile.ZipFile, member: Member) -> npt.NDArray[Any]:
    """The array in memory of its own; the file's checksum is compared at its end."""
    shape = member.shape[::-1] if member.fortran else member.shape
    array = aligned(shape, member.dtype)
    target = memoryview(array.reshape(-1).view(np.uint8).data)
    content: Any = file.open(f"{member.name}.npy")
    with content as stream:
        stream.read(member.header)
        at = 0
        while at < len(target):
            count = stream.readinto(target[at : at + CHUNK_BYTES])
            if not count:
                raise EOFError(f"{member.name} ends too early")
            at += count
        stream.read(1)
    return np.ascontiguousarray(array.T) if member.fortran else array


def _what(error: Exception) -> str:
    return reason(error) or type(error).__name__
