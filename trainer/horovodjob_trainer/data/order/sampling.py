"""Sampling: the rows that a rank reads in a step, and those for testing. Both depend only on the seed."""

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def step_rows(position: int, *, samples: int, batch: int, rank: int, size: int, seed: int) -> Rows:
    """Rows of `rank` in the step before which the whole job has consumed `position` examples.

    The job reads an infinite sequence of random permutations of all rows, from which the ranks take turns to read a
    batch. No row is dropped, no two ranks read the same row of a permutation, and N ranks read the rows in a step that
    one rank with N times the batch size would read.
    """
    first = position + rank * batch
    return rows_at_positions(np.arange(first, first + batch), samples=samples, seed=seed)


def rows_at_positions(positions: Rows, *, samples: int, seed: int) -> Rows:
    """Rows at these positions, an array of any shape, in the infinite sequence."""
    rows = np.empty(positions.shape, dtype=np.int64)
    passes, offsets = np.divmod(positions, samples)
    for number in range(int(passes.min()), int(passes.max()) + 1):
        in_pass = passes == number
        rows[in_pass] = _permutation(samples, seed, number)[offsets[in_pass]]
    return rows


_permutation_cache: dict[tuple[int, int, int], Rows] = {}


def _permutation(samples: int, seed: int, number: int) -> Rows:
    key = (samples, seed, number)
    permutation = _permutation_cache.get(key)
    if permutation is None:
        while len(_permutation_cache) >= 4:
            _permutation_cache.pop(next(iter(_permutation_cache)), None)
        _permutation_cache[key] = permutation = np.random.default_rng((seed, number)).permutation(samples)
    return permutation


def split_rows(
    samples: int, *, share: float, seed: int, labels: npt.NDArray[np.int64] | None = None
) -> tuple[Rows, Rows]:
    """Training rows and test rows in increasing order, the same on every rank and in every attempt.

    With labels, the share applies to each class, and each class keeps at least one training row.
    """
    groups = [np.arange(samples)] if labels is None else [np.flatnonzero(labels == each) for each in np.unique(labels)]
    test: list[Rows] = []
    for number, rows in enumerate(groups):
        count = min(round(share * len(rows)), len(rows) - 1)
        test.append(np.random.default_rng((seed, number)).permutation(rows)[:count])
    selected = np.sort(np.concatenate(test))
    if not len(selected) and samples > 1:  # the share of each class is less than one row
        selected = np.array([samples - 1])
    return np.setdiff1d(np.arange(samples), selected), selected
