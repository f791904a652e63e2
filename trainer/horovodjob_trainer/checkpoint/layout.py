"""The layout of a checkpoint: an .h5 file of model and optimizer by Keras, with the state of the run and a checksum."""

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
# Errors that h5py and Keras raise for truncated files, files of other programs and files of other models.
READ_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, EOFError)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """The layout of the variables in a file: the bytes of a file by Keras, and the HDF5 data sets of the variables.

    Keras writes the file once. Each checkpoint is a copy of it with new values, which any thread can write during
    training. For a model that Keras cannot save as .h5, the file contains only the values.
    """

    base: bytes
    datasets: tuple[tuple[str, int], ...]

    @classmethod
    def of_model(cls, model: Any) -> "CheckpointLayout":
        """The layout for a compiled model with a built optimizer."""
        variables = training_variables(model)
        try:
            base = _keras_file(model)
            datasets = tuple(_datasets(base, model, variables))
        except (*READ_ERRORS, NotImplementedError):
            base, datasets = b"", ()
        if {index for _, index in datasets} != set(range(len(variables))):
            base, datasets = b"", tuple((f"variables/{index}", index) for index in range(len(variables)))
        return cls(base, datasets)

    def serialize(self, values: Sequence[Array], run: str, state: RunState) -> memoryview:
        """The content of a checkpoint with these values, in the order of `training_variables`."""
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
class CheckpointDescription:
    """The metadata in a checkpoint."""

    run: str
    state: RunState
    datasets: tuple[tuple[str, int], ...]
    sha256: str


def training_variables(model: Any) -> list[Any]:
    """The variables that training changes: the weights, then the variables of the optimizer."""
    return [*model.weights, *model.optimizer.variables]


def snapshot(variables: Sequence[Any]) -> list[Array]:
    """Copies of the values."""
    return [np.array(variable.value) for variable in variables]


def read_description(path: Path) -> CheckpointDescription:
    """The metadata in the checkpoint. Raises one of READ_ERRORS for any other file."""
    with h5py.File(path) as h5:
        return _description(h5)


def restore_variables(path: Path, variables: Sequence[Any]) -> RunState:
    """Assign the values in the checkpoint to the variables. Raises one of READ_ERRORS and then changes no variable."""
    with h5py.File(path) as h5:
        description = _description(h5)
        values: dict[int, Array] = {index: h5[name][()] for name, index in description.datasets}
    if sorted(values) != list(range(len(variables))):
        raise ValueError("it belongs to a different network or optimizer")
    arrays = [np.asarray(values[index]) for index in range(len(variables))]
    if [array.shape for array in arrays] != [tuple(variable.shape) for variable in variables]:
        raise ValueError("it belongs to a different network or optimizer")
    metadata = {"run": description.run, "state": description.state.to_json(), "datasets": description.datasets}
    if _checksum(arrays, metadata) != description.sha256:
        raise ValueError("its content does not match its checksum")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
    return description.state


def _description(h5: Any) -> CheckpointDescription:
    metadata = json.loads(h5.attrs[ATTRIBUTE])
    datasets = tuple((str(path), int(index)) for path, index in metadata["datasets"])
    state = RunState.from_json(metadata["state"])
    return CheckpointDescription(metadata["run"], state, datasets, metadata["sha256"])


def _checksum(values: Sequence[Array], description: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for value in values:
        digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    return digest.hexdigest()


def _keras_file(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "layout.h5"
        model.save(path)
        return path.read_bytes()


def _datasets(base: bytes, model: Any, variables: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """The data set of each variable in the file by Keras. Raises KeyError or ValueError if one is not found."""
    index = {id(variable): number for number, variable in enumerate(variables)}
    with h5py.File(io.BytesIO(base)) as h5:
        groups = [(f"model_weights/{layer.name}", [*layer.trainable_weights, *layer.non_trainable_weights])
                  for layer in model.layers]  # fmt: skip
        for group, weights in [*groups, ("optimizer_weights", list(model.optimizer.variables))]:
            names = _weight_names(h5[group]) if weights else []
            for name, variable in zip(names, weights, strict=True):
                if h5[group][name].shape != tuple(variable.shape):
                    raise ValueError(f"{group}/{name} has a different shape")
                yield f"{group}/{name}", index[id(variable)]


def _weight_names(group: Any) -> list[str]:
    # Keras splits the list if it is too long for an HDF5 attribute.
    if "weight_names" in group.attrs:
        chunks = [group.attrs["weight_names"]]
    else:
        chunks = [
            group.attrs[f"weight_names{n}"] for n in range(sum(a.startswith("weight_names") for a in group.attrs))
        ]
    return [name.decode() if isinstance(name, bytes) else str(name) for chunk in chunks for name in chunk]
