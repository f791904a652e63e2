"""Examples without labels, for predictions."""

from pathlib import Path

import numpy as np

from horovodjob_trainer.data.formats.image_folder import ImageFiles
from horovodjob_trainer.data.formats.npz import unlabelled_arrays
from horovodjob_trainer.data.indexes.image_index import SUFFIXES, list_tree
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.errors import DataError


def unlabelled_examples(path: Path, size: int) -> Source:
    """An image, the images in a folder and its subfolders, or the array x in an .npz file. All labels are 0.

    Raises DataError with one sentence.
    """
    if path.suffix == ".npz":
        return unlabelled_arrays(path)
    if path.is_dir():
        files = [str(path / name) for name in list_tree(path).files]
        if not files:
            raise DataError(f"{path} contains no images ({', '.join(SUFFIXES)}); give another folder with --data")
    elif path.exists():
        files = [str(path)]
    else:
        raise DataError(f"{path} does not exist; give images with --data")
    return ImageFiles(files, np.zeros(len(files), np.int64), (), size, str(path))
