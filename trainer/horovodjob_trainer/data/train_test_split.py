"""Rows kept for the test where the data has no test part of its own."""

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.sampling import Rows


def split_rows(
    samples: int, *, share: float, seed: int, labels: npt.NDArray[np.int64] | None = None
) -> tuple[Rows, Rows]:
    """Rows to train on and rows for the test, the same on every rank and in every attempt, each in rising order.

    With labels, each class gives its share, and keeps at least one row to train on.
    """
    groups = [np.arange(samples)] if labels is None else [np.flatnonzero(labels == each) for each in np.unique(labels)]
    test: list[Rows] = []
    for number, rows in enumerate(groups):
        count = min(round(share * len(rows)), len(rows) - 1)
        test.append(np.random.default_rng((seed, number)).permutation(rows)[:count])
    chosen = np.sort(np.concatenate(test))
    if not len(chosen) and samples > 1:  # so few of each class that no share makes a whole one
        chosen = np.array([samples - 1])
    return np.setdiff1d(np.arange(samples), chosen), chosen
