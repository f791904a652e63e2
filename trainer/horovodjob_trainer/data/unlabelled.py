"""Examples without labels, for predictions."""

from pathlib import Path

import numpy as np

from horovodjob_trainer.data.image_folder import ENDINGS, PictureFiles, pictures_below
from horovodjob_trainer.data.npz import examples_of
from horovodjob_trainer.data.source import Source
from horovodjob_trainer.errors import DataError


def unlabelled(path: Path, size: int) -> Source:
    """A picture, the pictures of a folder and its folders, or the array x of an .npz file; labels are all 0.

    Raises DataError with one sentence.
    """
    if path.suffix == ".npz":
        return examples_of(path)
    if path.is_dir():
        files = sorted(pictures_below(path))
        if not files:
            raise DataError(f"{path} holds no pictures ({', '.join(ENDINGS)}); give another folder with --data")
    elif path.exists():
        files = [str(path)]
    else:
        raise DataError(f"{path} does not exist; give pictures with --data")
    return PictureFiles(files, np.zeros(len(files), np.int64), (), size, str(path))
