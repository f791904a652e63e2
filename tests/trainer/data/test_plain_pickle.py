"""Pickles from the network: what they may contain, and attacks on the loader."""

import io
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from horovodjob_trainer.data.formats import plain_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ARRAYS = {
    "bytes": np.arange(6, dtype="u1").reshape(2, 3),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big endian": np.arange(3, dtype=">i4"),
    "text": np.array(["a", "bc"]),
    "names": np.array([b"a", b"bc"]),
    "scalar": np.array(True),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_arrays_lists_and_strings_are_loaded(protocol: int) -> None:
    for name, array in ARRAYS.items():
        content = pickle.dumps({"array": array, "list": [1, "x"]}, protocol=protocol)
        found = plain_pickle.load(io.BytesIO(content))
        np.testing.assert_array_equal(found["array"], array, err_msg=name)
        assert (found["array"].dtype.kind, found["list"]) == (array.dtype.kind, [1, "x"])


def reduced(function: str, *arguments: bytes, state: bytes = b"") -> bytes:
    """A pickle that calls a function with arguments, and gives the result a state; both are pickled already."""
    call = b"c" + function.encode() + b"\n(" + b"".join(arguments) + b"tR"
    return call + (state + b"b" if state else b"") + b"."


def part(value: object) -> bytes:
    """An argument of `reduced`."""
    return pickle.dumps(value, protocol=2)[2:-1]


NDARRAY, EMPTY, BYTE = b"cnumpy\nndarray\n", part((0,)), part("b")
OBJECTS = b"cnumpy\ndtype\n(" + part("O8") + b"tR"
BYTES = b"cnumpy\ndtype\n(" + part("u1") + b"tR"
RECONSTRUCT = "numpy.core.multiarray\n_reconstruct"


def state(shape: object, dtype: bytes, content: object) -> bytes:
    """The state of an array."""
    return b"(" + part(1) + part(shape) + dtype + part(False) + part(content) + b"t"


ATTACKS = {
    "an array of addresses": reduced(RECONSTRUCT, NDARRAY, EMPTY, BYTE, state=state((1,), OBJECTS, b"A" * 8)),
    "addresses in protocol 5": reduced(
        "numpy.core.numeric\n_frombuffer", part(b"A" * 8), OBJECTS, part((1,)), part("C")
    ),
    "a shape beyond the contents": reduced(RECONSTRUCT, NDARRAY, EMPTY, BYTE, state=state((1 << 40,), BYTES, b"A")),
    "a negative shape": reduced(RECONSTRUCT, NDARRAY, EMPTY, BYTE, state=state((-1, -1), BYTES, b"A")),
    "the type of arrays": reduced("numpy\nndarray", part((1 << 20,)), part("O")),
    "a state of a type": b"cnumpy\nndarray\n(" + part("x") + b"tb.",
    "a state of a function": b"cnumpy.core.numeric\n_frombuffer\nN}" + part("__code__") + part(1) + b"s\x86b.",
    "another size of a type": reduced(
        "numpy\ndtype", part("u1"), state=part((3, "|", ("O", (1,)), None, None, -1, -1, 0))
    ),
    "a huge memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "deep lists": b"(" * 1000 + b".",
    "a list of types": b"]cnumpy\ndtype\n(" + part("O8") + b"tRa.",
}


def test_no_pickle_reaches_the_memory_of_the_process() -> None:
    program = """
import gc, io, json, sys
from horovodjob_trainer.data.formats import plain_pickle
for name, content in json.load(sys.stdin).items():
    print(name, end=": ", flush=True)
    try:
        found = plain_pickle.load(io.BytesIO(bytes.fromhex(content)))
        print(repr(found), getattr(found, "dtype", ""))
        del found
        gc.collect()
    except ValueError as error:
        print("refused:", error)
"""
    attacks = json.dumps({name: content.hex() for name, content in ATTACKS.items()})
    done = subprocess.run([sys.executable, "-c", program], input=attacks, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == len(ATTACKS)
    assert "dtype=object" not in done.stdout
    assert "ndarray'" not in done.stdout


@pytest.mark.parametrize(
    "value",
    [np.array([{}], dtype=object), np.zeros(2, dtype=[("a", "i4")]), np.zeros(2, "V4"), np.float64(3), sum],
    ids=str,
)
def test_other_types_are_refused(value: object) -> None:
    for protocol in PROTOCOLS:
        with pytest.raises(ValueError, match=r"it (names|has|creates)"):
            plain_pickle.load(io.BytesIO(pickle.dumps(value, protocol=protocol)))
