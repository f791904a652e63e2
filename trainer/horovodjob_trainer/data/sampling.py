"""Which rows a rank reads in a step: a function of the seed and of how many examples the job has consumed."""

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def rows_at(position: int, *, samples: int, batch: int, rank: int, size: int, seed: int) -> Rows:
    """Rows that `rank` trains on in the step before which the whole job had consumed `position` examples.

    The job reads one endless sequence, a new permutation of all rows after the other, and the ranks take turns
    in it. So no row is dropped, no two ranks read the same row of a permutation, and the rows that N ranks read
    in a step are those that one rank with N times the batch would read.
    """
    first = position + rank * batch
    return sequence(np.arange(first, first + batch), samples=samples, seed=seed)


def sequence(places: Rows, *, samples: int, seed: int) -> Rows:
    """Rows at these places, of any shape, of the endless sequence."""
    rows = np.empty(places.shape, dtype=np.int64)
    passes, inside = np.divmod(places, samples)
    for number in range(int(passes.min()), int(passes.max()) + 1):
        here = passes == number
        rows[here] = _permutation(samples, seed, number)[inside[here]]
    return rows


_kept: dict[tuple[int, int, int], Rows] = {}


def _permutation(samples: int, seed: int, number: int) -> Rows:
    key = (samples, seed, number)
    found = _kept.get(key)
    if found is None:
        while len(_kept) >= 4:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = found = np.random.default_rng((seed, number)).permutation(samples)
    return found
