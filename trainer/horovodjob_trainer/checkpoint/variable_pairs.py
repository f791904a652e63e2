"""The variables of a script and the values of a checkpoint that belong to each other, or what differs between them."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

SLOT = re.compile(r"_(momentum|velocity|accumulator|average)$")  # what an optimizer keeps of a weight
DIFFERENT = "it belongs to a different network or optimizer"


def pair_variables(variables: Sequence[Any], arrays: Sequence[Any], names: Sequence[str]) -> list[tuple[Any, Any]]:
    """The variables with their values, whose names in the run an earlier release does not know. Raises ValueError.

    A learning rate that only one side has is left out, because a schedule is no variable.
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
