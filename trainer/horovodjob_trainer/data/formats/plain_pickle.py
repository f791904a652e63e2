"""Pickles of arrays, lists and strings, loaded without running code from the file."""

import pickle
from typing import IO, Any

import numpy as np
import numpy.typing as npt


def load(file: IO[bytes]) -> Any:
    """The object in the file, with strings of Python 2 as bytes. Raises ValueError if it contains other types."""
    try:
        return _Unpickler(file, encoding="bytes").load()
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(" ".join(str(error).split())) from error


class _Unpickler(pickle.Unpickler):
    """Unpickles the types in numpy arrays and no type that could run code."""

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
        raise pickle.UnpicklingError("it creates an array in an unknown way")
    return np.ndarray(shape, dtype="u1")  # the real shape and type follow as the array's state


def _array(buffer: Any, dtype: Any, shape: tuple[int, ...], order: str) -> npt.NDArray[Any]:
    """The function that numpy pickles an array with in protocol 5."""
    if order not in ("C", "F"):
        raise pickle.UnpicklingError(f"it uses the order {order!r}")
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order="C" if order == "C" else "F")


def _latin1(text: str, encoding: str | bytes) -> bytes:
    """The function that Python 3 pickles bytes with in protocol 2."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it uses the encoding {encoding!r}")
    return text.encode("latin1")
