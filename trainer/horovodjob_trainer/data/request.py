"""Requests for data sets."""

from dataclasses import dataclass
from pathlib import Path

ANY_SHA256 = "any"
ON_DISK = ("images", "tfrecord", "npz")
CACHES = ("auto", "memory", "none")
CROPS = ("center", "random")
SHUFFLES = ("auto", "exact", "window")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a data set. Images from files are resized to a height and width of `image_size` pixels."""

    dataset: str
    path: Path | None = None
    archive: Path | None = None
    archive_url: str | None = None
    archive_sha256: str | None = None
    data_directory: Path = Path("~/.cache/horovodjob")
    image_size: int = 64
    validation_share: float = 0.1
    cache: str = "auto"
    seed: int = 1
    threads: int = 2
    shuffle: str = "auto"
    shuffle_window: int | None = None
    crop: str = "center"
    validation_crop: float = 1.0  # side of the central square of a test image, as a share of its shorter side
    exif: bool = True  # whether images from files are turned to their EXIF orientation
    skip_damaged: int = 0
    output_directory: Path | None = None  # for an index of the files if the data cannot be written
