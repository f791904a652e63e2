"""The file of a checkpoint: an .h5 file of model and optimizer by Keras, with the state of the run and a checksum."""

import hashlib
import io
import json
import math
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from horovodjob_trainer.atomic_file import check_free_space
from horovodjob_trainer.checkpoint.run_state import RunState
from horovodjob_trainer.hvd.model_optimizers import used_optimizers

ATTRIBUTE = "horovodjob"
ARRAYS = "callbacks"  # the group of the arrays of callbacks
# Errors that h5py and Keras raise for truncated files, files of other programs and files of other models.
READ_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, EOFError)
SLOT = re.compile(r"_(momentum|velocity|accumulator|average)$")  # what an optimizer keeps of a weight
DIFFERENT = "it belongs to a different network or optimizer"

Array = npt.NDArray[Any]


class NonFiniteValues(ValueError):
    """The values of a checkpoint are not numbers, so training cannot continue from them."""


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """The layout of the variables in a file: a file by Keras without the values, and the data sets of the variables.

    Keras writes the file once. Each checkpoint is a copy of it with the values, which any thread can write during
    training. For a model that Keras cannot save as .h5, the file contains only the values.
    """

    base: bytes
    datasets: tuple[tuple[str, int], ...]
    names: tuple[str, ...] = ()

    @classmethod
    def of_model(cls, model: Any, variables: Sequence[Any] | None = None) -> "CheckpointLayout":
        """The layout for a model with built optimizers. `variables` are those of `training_variables` by default."""
        variables = training_variables(model) if variables is None else variables
        try:
            base, datasets = _keras_layout(model, variables)
        except (*READ_ERRORS, NotImplementedError):
            base, datasets = b"", ()
        if {index for _, index in datasets} != set(range(len(variables))):
            base, datasets = b"", tuple((f"variables/{index}", index) for index in range(len(variables)))
        return cls(base, datasets, tuple(str(each.path) for each in variables))

    def write(self, path: Path, values: Sequence[Array], run: str, state: RunState) -> None:
        """Write a checkpoint with these values, in the order of `training_variables`, without another copy of them."""
        names = sorted(state.arrays)
        description = {"run": run, "state": state.to_json(), "datasets": self.datasets, "arrays": names}
        description["names"] = self.names
        arrays = [state.arrays[name] for name in names]
        metadata = json.dumps({"sha256": _checksum([*values, *arrays], description), **description})
        path.write_bytes(self.base)  # HDF5 would keep an incomplete base open, and crash at the exit of Python
        with _DiskFile(path, "r+") as file:
            try:
                with h5py.File(file, "r+" if self.base else "w") as h5:
                    for name, index in self.datasets:
                        h5[name] = values[index]
                    for name, array in zip(names, arrays, strict=True):
                        h5[f"{ARRAYS}/{name}"] = array
                    h5.attrs[ATTRIBUTE] = metadata
            finally:
                if file.error is not None:  # the cause of an error of HDF5
                    raise file.error


@dataclass(frozen=True, slots=True)
class CheckpointDescription:
    """The metadata in a checkpoint."""

    run: str
    state: RunState
    datasets: tuple[tuple[str, int], ...]


def training_variables(model: Any, optimizers: Sequence[Any] | None = None) -> list[Any]:
    """The variables that training changes: the weights, then the variables of the optimizers, by default its own."""
    used = used_optimizers(model) if optimizers is None else optimizers
    return [*model.weights, *(each for optimizer in used for each in optimizer.variables)]


def size_bytes(variables: Sequence[Any]) -> int:
    """The approximate size of a file with the values of the variables."""
    return sum(4 * math.prod(variable.shape) for variable in variables)


def snapshot(variables: Sequence[Any]) -> list[Any]:
    """The values as tensors on their device, which no update changes: it gives its variable other memory."""
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def copies(tensors: Sequence[Any]) -> list[Array]:
    """Copies of the values in the memory of the host, after the device has computed them."""
    return [np.array(tensor) for tensor in tensors]


def check_finite(variables: Sequence[Any], values: Sequence[Array]) -> None:
    """Raise NonFiniteValues if a value is NaN, or if a trained weight is infinite. A constant mask can be infinite."""
    for variable, value in zip(variables, values, strict=True):
        if "float" not in variable.dtype or not value.size:
            continue
        with np.errstate(invalid="ignore"):
            ends = float(value.min()), float(value.max())  # NaN if a value is NaN
        if any(math.isnan(end) or (variable.trainable and math.isinf(end)) for end in ends):
            raise NonFiniteValues(f"{variable.path} is {'NaN' if math.isnan(ends[0]) else 'infinite'}")


def read_description(path: Path) -> CheckpointDescription:
    """The metadata in the checkpoint. Raises one of READ_ERRORS for any other file."""
    with h5py.File(path) as h5:
        return _description(h5)


def restore_variables(path: Path, variables: Sequence[Any]) -> RunState:
    """Assign the values in the checkpoint to the variables. Raises one of READ_ERRORS and then changes no variable.

    A learning rate is a variable unless it is a schedule: one that only the script has keeps its value.
    """
    with h5py.File(path) as h5:
        description = _description(h5)
        metadata = json.loads(h5.attrs[ATTRIBUTE])
        values: dict[int, Array] = {index: _read(h5, name) for name, index in description.datasets}
        own = {name: _read(h5, f"{ARRAYS}/{name}") for name in metadata.get("arrays", ())}
    arrays = [values[index] for index in sorted(values)]
    pairs = _pair_variables(variables, arrays, metadata.get("names", ()))
    checksum = metadata.pop("sha256")
    if _checksum([*arrays, *own.values()], metadata) != checksum:
        raise ValueError("its content does not match its checksum")
    check_finite(*zip(*pairs, strict=True))
    for variable, array in pairs:
        variable.assign(array)
    description.state.arrays = own
    return description.state


def _pair_variables(variables: Sequence[Any], arrays: Sequence[Any], names: Sequence[str]) -> list[tuple[Any, Any]]:
    """The variables with their values in the run. Raises ValueError if they do not belong to each other.

    `names` are those in the run; the checkpoint of an earlier release has none. A learning rate that only one side has
    is left out, because a schedule is no variable.
    """
    own, stored = [*variables], [*zip(names or [""] * len(arrays), arrays, strict=True)]
    pairs = []
    while own and stored:
        if _is_rate(own[0].path) and names and not _is_rate(stored[0][0]):
            own.pop(0)
        elif _is_rate(stored[0][0]) and not _is_rate(own[0].path):
            stored.pop(0)
        else:
            pairs.append((own.pop(0), stored.pop(0)))
    if any(not _is_rate(each.path) for each in own) or any(not _is_rate(name) for name, _ in stored):
        raise ValueError(f"{DIFFERENT}{_difference([each.path for each in variables], names)}")
    for variable, (name, array) in pairs:
        if tuple(variable.shape) != array.shape:
            raise ValueError(f"{DIFFERENT}: {variable.path} has the shape {tuple(variable.shape)} and in the run "
                             f"{array.shape}")  # fmt: skip
        kinds = SLOT.search(variable.path), SLOT.search(name)
        if all(kinds) and len({kind[1] for kind in kinds if kind is not None}) == 2:
            raise ValueError(f"{DIFFERENT}: the script has {variable.path}, and the run {name}")
    return [(variable, array) for variable, (_, array) in pairs]


def _is_rate(path: str) -> bool:
    return path.rpartition("/")[2] == "learning_rate"


def _difference(own: Sequence[str], stored: Sequence[str]) -> str:
    """The first of the variables that only the script or only the run has."""
    if not stored:
        return ""
    counts = [Counter(_without_numbers(path) for path in side if not _is_rate(path)) for side in (own, stored)]
    parts = []
    for place, more in (("the script", counts[0] - counts[1]), ("the run", counts[1] - counts[0])):
        if names := list(more):
            others = f" and {more.total() - 1} more" if more.total() > 1 else ""
            parts.append(f"only {place} has {names[0]}{others}")
    return f": {'; '.join(parts)}" if parts else ""


def _without_numbers(path: str) -> str:
    """The last part of a path without the numbers by which Keras distinguishes the layers of a process."""
    return re.sub(r"_[0-9]+(?=_|$)", "", path.rpartition("/")[2])


def _description(h5: Any) -> CheckpointDescription:
    metadata = json.loads(h5.attrs[ATTRIBUTE])
    datasets = tuple((str(path), int(index)) for path, index in metadata["datasets"])
    state = RunState.from_json(metadata["state"])
    return CheckpointDescription(metadata["run"], state, datasets)


def _read(h5: Any, name: str) -> Array:
    """The array with this name. Raises ValueError if it is not in the file itself: HDF5 would read any other file."""
    parts = name.split("/")
    paths = ("/".join(parts[: end + 1]) for end in range(len(parts)))
    is_linked = any(not isinstance(h5.get(path, getlink=True), h5py.HardLink) for path in paths)
    if is_linked or not isinstance(h5[name], h5py.Dataset) or h5[name].external or h5[name].is_virtual:
        raise ValueError(f"{name} refers to something outside the file")
    array: Array = h5[name][()]
    return array


def _checksum(values: Sequence[Array], description: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for value in values:
        digest.update(np.ascontiguousarray(value).view(np.uint8).data if value.size else b"")
    return digest.hexdigest()


class _DiskFile(io.FileIO):
    """A file for HDF5, which keeps the first error of the disk in `error` and ignores what is written afterwards.

    HDF5 cannot close a file that raises an exception. It then uses the file after it has been freed. With a driver of
    HDF5 itself, a full disk also leaves the file open, and shares without locks refuse it.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        with self._record_error():
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        return size

    def readinto(self, buffer: Any) -> int:
        with self._record_error():
            return super().readinto(buffer) or 0
        return 0

    def truncate(self, size: int | None = None) -> int:
        with self._record_error():
            return super().truncate(size)
        return 0

    @contextmanager
    def _record_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error


def _keras_layout(model: Any, variables: Sequence[Any]) -> tuple[bytes, tuple[tuple[str, int], ...]]:
    """The bytes of a file that Keras writes, without the values, and the data sets to fill in: (name, index)."""
    with tempfile.TemporaryDirectory() as directory:
        check_free_space(Path(directory), size_bytes(variables))
        path = Path(directory) / "layout.h5"
        model.save(path)
        with h5py.File(path) as complete:
            datasets = tuple(_datasets(complete, model, variables))
            return _without_values(complete, {name for name, _ in datasets}), datasets


def _without_values(complete: Any, omitted: Collection[str]) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as base:
        base.attrs.update(complete.attrs)

        def copy(name: str, item: Any) -> None:
            if isinstance(item, h5py.Group):
                base.require_group(name).attrs.update(item.attrs)
            elif name not in omitted:
                complete.copy(item, base, name)

        complete.visititems(copy)
    return file.getvalue()


def _datasets(h5: Any, model: Any, variables: Sequence[Any]) -> Iterator[tuple[str, int]]:
    """The data set of each variable in the file by Keras. Raises KeyError or ValueError if one is not found."""
    index = {id(variable): number for number, variable in enumerate(variables)}
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
