"""Handwritten digits that are part of the trainer: real images without a download."""

from importlib.resources import files

import numpy as np

from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from horovodjob_trainer.data.source import Dataset

CHANNELS, CLASSES = 3, 10
# The test set of https://archive.ics.uci.edu/dataset/80 (CC BY 4.0): `images` contains 8x8 values from 0 to 16,
# `labels` the digits. The first 1,437 are for training; the remaining ones have the same proportions of classes.
FILE = "digits.npz"
TRAINING_ROWS = 1437


def digits() -> Dataset:
    """1,797 handwritten digits, enlarged by a factor of four and with three equal channels.

    The split is fixed: 1,437 are for training and 360 for testing. Source: E. Alpaydin and C. Kaynak, Optical
    Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49.
    """
    with files(__package__).joinpath(FILE).open("rb") as file, np.load(file, allow_pickle=False) as content:
        grey, labels = np.rint(content["images"] * (255 / 16)).astype(np.uint8), content["labels"].astype(np.int64)
    images = np.repeat(grey.repeat(4, axis=1).repeat(4, axis=2)[..., np.newaxis], CHANNELS, axis=3)
    names = tuple(str(digit) for digit in range(CLASSES))
    train, test = (
        Arrays(aligned_copy(images[rows]), aligned_copy(labels[rows]), CLASSES, names)
        for rows in (slice(None, TRAINING_ROWS), slice(TRAINING_ROWS, None))
    )
    return Dataset(train, test, "digits")
