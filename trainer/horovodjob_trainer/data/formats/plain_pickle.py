"""Pickles of arrays, lists and strings, loaded without running code from the file."""

import math
import pickle
from collections.abc import Callable
from typing import IO, Any

import numpy as np
import numpy.typing as npt

# Booleans, numbers and strings of a fixed size. An array of objects would take bytes of the file for addresses.
KINDS = "biufcSU"
ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def load(file: IO[bytes]) -> Any:
    """The object in the file, with strings of Python 2 as bytes. Raises ValueError if it contains other types."""
    try:
        return _Unpickler(file, encoding="bytes").load()
    except ERRORS as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


class _Unpickler(pickle._Unpickler):
    """Unpickles the types in numpy arrays. Neither numpy's types nor a function that a pickle can change are in reach.

    It is the one in Python: that in C allocates as much memory as the largest index in the file names.
    """

    def find_class(self, module: str, name: str) -> Any:
        found = NAMES.get((module.replace("numpy._core.", "numpy.core."), name))
        if found is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return found


class _Name:
    """What a name in a pickle stands for: a function to call, or None for the type of an array."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any] | None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        """The result of the function."""
        if self._call is None:
            raise pickle.UnpicklingError("it creates an array in an unknown way")
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes a function")


class _Type:
    """The type of the elements of an array, as the pickle describes it."""

    __slots__ = ("_code", "_order")

    def __init__(self, code: Any, *_: Any) -> None:
        self._code, self._order = _text(code), "="

    def __setstate__(self, state: Any) -> None:
        _, order, *parts = state
        if parts[:3] != [None, None, None]:
            raise pickle.UnpicklingError("it has an array of structures")
        self._order = _text(order)

    def dtype(self) -> np.dtype[Any]:
        """The type of numpy. Raises UnpicklingError for types with addresses of memory."""
        found = np.dtype(self._code)
        if found.kind not in KINDS or self._order not in tuple("<>=|"):
            raise pickle.UnpicklingError(f"it has an array of the type {self._code!r}")
        return found if self._order == "|" else found.newbyteorder(self._order)  # type: ignore[arg-type]


class PlainArray(np.ndarray[Any, np.dtype[Any]]):
    """An array that checks the state that a pickle gives it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        array = _array(content, kind, shape, "F" if fortran else "C")
        super().__setstate__((1, array.shape, array.dtype, bool(fortran), bytes(content)))  # type: ignore[arg-type]


def _empty_array(kind: Any, shape: Any, code: Any) -> npt.NDArray[Any]:
    if kind is not ARRAY or shape != (0,):
        raise pickle.UnpicklingError("it creates an array in an unknown way")
    return PlainArray((0,), dtype="u1")  # the real shape and type follow as the array's state


def _array(content: Any, kind: Any, shape: Any, order: Any) -> npt.NDArray[Any]:
    """The function that numpy pickles an array with in protocol 5."""
    if order not in ("C", "F") or not isinstance(kind, _Type) or not isinstance(content, bytes | bytearray):
        raise pickle.UnpicklingError("it creates an array in an unknown way")
    dtype = kind.dtype()
    if type(shape) is not tuple or any(type(length) is not int or length < 0 for length in shape):
        raise pickle.UnpicklingError(f"it has an array of the shape {shape!r}")
    if math.prod(shape) * dtype.itemsize != len(content):
        raise pickle.UnpicklingError("it has an array whose contents do not fit its shape")
    return np.frombuffer(content, dtype=dtype).reshape(shape, order="C" if order == "C" else "F").view(PlainArray)


def _latin1(text: Any, encoding: Any) -> bytes:
    """The function that Python 3 pickles bytes with in protocol 2."""
    if encoding not in ("latin1", b"latin1") or type(text) is not str:
        raise pickle.UnpicklingError(f"it uses the encoding {encoding!r}")
    return text.encode("latin1")


def _text(value: Any) -> str:
    """A string, which Python 2 pickles as bytes."""
    if type(value) is bytes:
        return value.decode("ascii")
    if type(value) is not str:
        raise pickle.UnpicklingError(f"it has a {type(value).__name__} instead of a string")
    return value


ARRAY = _Name(None)
NAMES = {
    ("numpy", "ndarray"): ARRAY,
    ("numpy", "dtype"): _Name(_Type),
    ("numpy.core.multiarray", "_reconstruct"): _Name(_empty_array),
    ("numpy.core.numeric", "_frombuffer"): _Name(_array),
    ("_codecs", "encode"): _Name(_latin1),
}
