"""Selection of test examples for data sets without a test part."""

import numpy as np
import numpy.typing as npt

from horovodjob_trainer.data.order.sampling import Rows


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
