"""The form of a checkpoint: Keras' own .h5 file of model and optimizer, with the state of the run and a checksum."""

import hashlib
import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from horovodjob_trainer.checkpoint.run_state import RunState

ATTRIBUTE = "horovodjob"
# What h5py and Keras raise for files that are cut off, foreign or of another model.
UNREADABLE = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, EOFError)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How the variables of a model lie in a file: the bytes of a file by Keras, and the data sets to fill in.

    Keras writes the file once; from then on a checkpoint is a copy of it with new numbers, which any thread can
    make while the model trains. A model that Keras cannot write as .h5 gets a file with nothing but the numbers.
    """

    base: bytes
    datasets: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, model: Any) -> "Form":
        """The form for a compiled model whose optimizer is built."""
        variables = variables_of(model)
        try:
            base = _written_by_keras(model)
            datasets = tuple(_datasets(base, model, variables))
        except (*UNREADABLE, NotImplementedError):
            base, datasets = b"", ()
        if {index for _, index in datasets} != set(range(len(variables))):
            base, datasets = b"", tuple((f"variables/{index}", index) for index in range(len(variables)))
        return cls(base, datasets)

    def content(self, values: Sequence[Array], run: str, state: RunState) -> memoryview:
        """A checkpoint of these values, in the order of `variables_of`."""
        file = io.BytesIO(self.base)
        description = {"run": run, "state": state.to_json(), "datasets": self.datasets}
        with h5py.File(file, "r+" if self.base else "w") as h5:
            for path, index in self.datasets:
                if path in h5:
                    h5[path][...] = values[index]
                else:
                    h5[path] = values[index]
            h5.attrs[ATTRIBUTE] = json.dumps({"sha256": _checksum(values, description), **description})
        return file.getbuffer()


@dataclass(frozen=True, slots=True)
class Description:
    """What a checkpoint says of itself."""

    run: str
    state: RunState
    datasets: tuple[tuple[str, int], ...]
    sha256: str


def variables_of(model: Any) -> list[Any]:
    """All that training changes: weights, then the optimizer's variables."""
    return [*model.weights, *model.optimizer.variables]


def snapshot(variables: Sequence[Any]) -> list[Array]:
    return [np.array(variable.value) for variable in variables]


def described(path: Path) -> Description:
    """What the checkpoint says of itself; raises one of UNREADABLE for another file."""
    with h5py.File(path) as h5:
        return _description(h5)


def restored(path: Path, variables: Sequence[Any]) -> RunState:
    """Gives the variables the checkpoint's values, or leaves them as they are and raises one of UNREADABLE."""
    with h5py.File(path) as h5:
        description = _description(h5)
        values: dict[int, Array] = {index: h5[name][()] for name, index in description.datasets}
    if sorted(values) != list(range(len(variables))):
        raise ValueError("it is of another network or optimizer")
    arrays = [np.asarray(values[index]) for index in range(len(variables))]
    if [array.shape for array in arrays] != [tuple(variable.shape) for variable in variables]:
        raise ValueError("it is of another network or optimizer")
    told = {"run": description.run, "state": description.state.to_json(), "datasets": description.datasets}
    if _checksum(arrays, told) != description.sha256:
        raise ValueError("its content does not match its checksum")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
    return description.state


def _description(h5: Any) -> Description:
    told = json.loads(h5.attrs[ATTRIBUTE])
    datasets = tuple((str(path), int(index)) for path, index in told["datasets"])
    return Description(told["run"], RunState.from_json(told["state"]), datasets, told["sha256"])


def _checksum(values: Sequence[Array], description: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for value in values:
        digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    return digest.hexdigest()


def _written_by_keras(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "form.h5"
        model.save(path)
        return path.read_bytes()


def _datasets(base: bytes, model: Any, variables: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """Where each variable lies in the file by Keras; KeyError or ValueError where that cannot be told."""
    index = {id(variable): number for number, variable in enumerate(variables)}
    with h5py.File(io.BytesIO(base)) as h5:
        groups = [(f"model_weights/{layer.name}", [*layer.trainable_weights, *layer.non_trainable_weights])
                  for layer in model.layers]  # fmt: skip
        for group, weights in [*groups, ("optimizer_weights", list(model.optimizer.variables))]:
            names = _names(h5[group]) if weights else []
            for name, variable in zip(names, weights, strict=True):
                if h5[group][name].shape != tuple(variable.shape):
                    raise ValueError(f"{group}/{name} has another shape")
                yield f"{group}/{name}", index[id(variable)]


def _names(group: Any) -> list[str]:
    # Keras cuts the list into pieces where an attribute would be too long.
    if "weight_names" in group.attrs:
        pieces = [group.attrs["weight_names"]]
    else:
        pieces = [
            group.attrs[f"weight_names{n}"] for n in range(sum(a.startswith("weight_names") for a in group.attrs))
        ]
    return [name.decode() if isinstance(name, bytes) else str(name) for piece in pieces for name in piece]
