"""The decoding of images: the central square, or a random crop."""

import math

import numpy as np

from horovodjob_trainer.data.reading.image_pixels import FORMAT_NAMES, Pixels, UnreadableImage, Window, image_part
from horovodjob_trainer.data.source import Decode

AREA, ASPECT_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
LOG_RATIO = math.log(ASPECT_RATIO[0]), math.log(ASPECT_RATIO[1])
ATTEMPTS = 10


def central_square(size: int, share: float = 1.0, *, exif: bool = True) -> Decode:
    """The decoding of the central square of an image, scaled to `size` x `size` x 3 bytes.

    Its side is a share of the shorter side of the image. With `exif`, the image is turned to its EXIF orientation.
    """

    def square(height: int, width: int) -> Window:
        side = max(round(min(height, width) * share), 1)
        return (height - side) // 2, (width - side) // 2, side, side

    return lambda content, _: image_part(content, square, size, antialias=True, exif=exif)


def random_crop(size: int, seed: int, *, exif: bool = True) -> Decode:
    """The decoding of a random part of an image, scaled to `size` x `size` x 3 bytes.

    It depends only on the image, the seed and the position. It is the random resized crop of Szegedy et al. 2014
    (arXiv:1409.4842, section 6), with which ImageNet is trained.
    """

    def decode(content: bytes, position: int) -> Pixels:
        return image_part(content, lambda h, w: _window(h, w, seed, position), size, antialias=False, exif=exif)

    return decode


def _window(height: int, width: int, seed: int, position: int) -> Window:
    """Top, left, height and width of a random part. The central one of a possible ratio if no attempt fits into it."""
    numbers = np.random.Generator(np.random.Philox(key=seed % 2**64, counter=position)).random((ATTEMPTS, 4)).tolist()
    for of_area, of_ratio, of_top, of_left in numbers:
        area = height * width * (AREA[0] + of_area * (AREA[1] - AREA[0]))
        ratio = math.exp(LOG_RATIO[0] + of_ratio * (LOG_RATIO[1] - LOG_RATIO[0]))  # of the width to the height
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            return int(of_top * (height - rows + 1)), int(of_left * (width - columns + 1)), rows, columns
    rows = min(height, max(round(width / ASPECT_RATIO[0]), 1))
    columns = min(width, max(round(height * ASPECT_RATIO[1]), 1))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def image_or_none(decode: Decode, content: bytes, position: int) -> Pixels | None:
    """The pixels of an image, None if its content is no complete image."""
    try:
        return decode(content, position)
    except MemoryError:
        raise
    except Exception:  # Pillow and its formats raise many types
        return None


def decoding_problem(size: int, content: bytes) -> str | None:
    """Why the content is no image that can be read, None if it is one."""
    if not content:
        return "it is empty"
    try:
        central_square(size)(content, 0)
    except MemoryError:
        raise
    except UnreadableImage as error:
        return str(error)
    except Exception:
        return f"it is not a complete {FORMAT_NAMES} image"
    return None
