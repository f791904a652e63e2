"""Models of somebody else: their files name code to run, or other files to read."""

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras

EXECUTED = "executed"
MODULE = f"open({EXECUTED!r}, 'w').close()\ndef identity(x): return x\n"


def write(folder: Path, line: Any) -> None:
    """Write lambda.*, imports.keras, and link.*, storage.* and virtual.*, which are `line` with weights elsewhere."""
    layer = keras.layers.Lambda(lambda x: (__import__("os").makedirs("executed", exist_ok=True), x)[1])
    with contextlib.chdir(folder):  # Keras calls it to build the model
        model = keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1)])
        for name in ("lambda.keras", "lambda.h5"):
            model.save(name)
    (folder / EXECUTED).rmdir()
    (folder / "planted.py").write_text(MODULE)
    function = {"module": "planted", "class_name": "function", "config": "identity", "registered_name": "function"}
    rewrite(folder / "line.keras", folder / "imports.keras", "config.json", lambda path: call(path, function))
    for kind, change in ELSEWHERE.items():
        shutil.copy(folder / "line.h5", folder / f"{kind}.h5")
        change(folder / f"{kind}.h5")
        rewrite(folder / "line.keras", folder / f"{kind}.keras", "model.weights.h5", change)


def rewrite(source: Path, target: Path, member: str, change: Callable[[Path], None]) -> None:
    """Copy a .keras file with one member changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            path = target.parent / f"member-{member}"
            path.write_bytes(old.read(name))
            if name == member:
                change(path)
            new.write(path, name)
            path.unlink()


def call(path: Path, function: dict[str, str]) -> None:
    """Make the activation of the last layer a function of another module."""
    config = json.loads(path.read_text())
    config["config"]["layers"][-1]["config"]["activation"] = function
    path.write_text(json.dumps(config))


def take_out(path: Path) -> tuple[str, Any, Path]:
    """Remove the first array of an HDF5 file. Returns its name and values, and a copy of the file that has them."""
    other = path.with_name(f"outside-{path.name}")
    shutil.copy(path, other)
    with h5py.File(path, "r+") as h5:
        found: list[str] = []
        h5.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.ndim else None)
        values = h5[found[0]][()]
        del h5[found[0]]
    return found[0], values, other


def link(path: Path) -> None:
    """Replace the first array by a link to another file."""
    name, _, other = take_out(path)
    with h5py.File(path, "r+") as h5:
        h5[name] = h5py.ExternalLink(str(other), name)


def store(path: Path) -> None:
    """Replace the first array by the bytes of another file."""
    name, values, other = take_out(path)
    other.write_bytes(values.tobytes())
    with h5py.File(path, "r+") as h5:
        h5.create_dataset(name, values.shape, values.dtype, external=[(str(other), 0, values.nbytes)])


def virtualize(path: Path) -> None:
    """Replace the first array by a view of one in another file."""
    name, values, other = take_out(path)
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[:] = h5py.VirtualSource(str(other), name, values.shape, values.dtype)
    with h5py.File(path, "r+") as h5:
        h5.create_virtual_dataset(name, layout)


ELSEWHERE = {"link": link, "storage": store, "virtual": virtualize}
