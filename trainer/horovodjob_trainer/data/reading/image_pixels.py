"""The pixels of encoded images. Pillow reads every format; two libraries that can be missing are faster than it.

These are simplejpeg for JPEG images and cykooz-resizer for the scaling.
"""

import io
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Window = tuple[int, int, int, int]  # top, left, height and width of a part of an image

HEIF_PACKAGE, HEIF_SUFFIXES = "pillow_heif", (".heic", ".heif")
FORMATS: tuple[str, ...] = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "AVIF")
FORMAT_NAMES = "JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF"
ALWAYS_READ: tuple[str, ...] = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".avif")
SUFFIXES = ALWAYS_READ
if find_spec(HEIF_PACKAGE) is not None:
    SUFFIXES, FORMATS, FORMAT_NAMES = SUFFIXES + HEIF_SUFFIXES, (*FORMATS, "HEIF"), f"{FORMAT_NAMES[:-8]}, AVIF or HEIC"

JPEG_START, JPEG_COLORS = b"\xff\xd8\xff", ("YCbCr", "RGB", "Gray")
PIXELS, METADATA = b"\xda", b"\xe1"  # kinds of segments; the second one contains EXIF or XMP data
ORIENTATION, UPRIGHT = 0x0112, 1  # the tag of EXIF, and its value for an image that is not turned
# A part of a JPEG image with this many times the pixels of a side is decoded at a fraction of its size that still has
# twice these pixels: the inverse cosine transform then computes fewer of them.
SHRUNK_FROM, SHRUNK_TO = 4, 2

_NOTHING: Pixels = np.empty(0, np.uint8)
_memory = threading.local()


class UnreadableImage(ValueError):
    """A complete image that cannot be read. The text is the reason, for a message."""


@dataclass(frozen=True, slots=True)
class _Image:
    """An image with its height and width in the file, and the EXIF orientation to which it must be turned.

    `pixels` decodes it with at least this height and width.
    """

    height: int
    width: int
    orientation: int
    pixels: Callable[[int, int], Pixels]


def image_part(
    content: bytes, choose: Callable[[int, int], Window], size: int, *, antialias: bool, exif: bool = True
) -> Pixels:
    """A part of the image in the content of a file, scaled linearly to `size` x `size` x 3 bytes.

    `choose` returns the part of an image with this height and width. With `exif`, they are those of the image after it
    is turned to its EXIF orientation. With `antialias`, each pixel of the part has a weight. Raises an exception, of
    many types, for a content that is no complete image.
    """
    image = _opened(content, exif)
    turns = image.orientation > 4
    shape = (image.width, image.height) if turns else (image.height, image.width)
    top, left, height, width = choose(*shape)
    shrinks = min(height, width) >= SHRUNK_FROM * size
    share = SHRUNK_TO * size / min(height, width) if shrinks else 1.0
    pixels = _turned(image.pixels(round(image.height * share), round(image.width * share)), image.orientation)
    rows, columns = pixels.shape[0] / shape[0], pixels.shape[1] / shape[1]  # 1 unless it is shrunk
    bottom, right = round((top + height) * rows), round((left + width) * columns)
    part = _contiguous(pixels[round(top * rows) : bottom, round(left * columns) : right])
    return part.copy() if part.shape == (size, size, 3) else _scaled(part, size, antialias)


def _opened(content: bytes, exif: bool) -> _Image:
    library = _library("simplejpeg")
    if library is None or not content.startswith(JPEG_START):
        return _opened_by_pillow(content, exif)
    height, width, colors, _ = library.decode_jpeg_header(content)
    if colors not in JPEG_COLORS:
        return _opened_by_pillow(content, exif)
    orientation = _orientation(_pillow_image(content)) if exif and _has_metadata(content) else UPRIGHT

    def pixels(rows: int, columns: int) -> Pixels:
        least = {} if rows == height else {"min_height": rows, "min_width": columns}
        try:
            buffer = _scratch("image", height * width * 3)
            decoded: Pixels = library.decode_jpeg(content, "RGB", fastdct=True, buffer=buffer, **least)
        except ValueError:  # also raised for damage with which Pillow still reads the image
            return _opened_by_pillow(content, exif).pixels(rows, columns)
        return decoded

    return _Image(height, width, orientation, pixels)


def _opened_by_pillow(content: bytes, exif: bool) -> _Image:
    image = _pillow_image(content)
    in_file = _orientation(image)
    if image.format != "JPEG":
        image.load()  # which turns TIFF images
    orientation = _orientation(image) if exif else UPRIGHT
    if not exif and _orientation(image) != in_file:
        orientation = {6: 8, 8: 6}.get(in_file, in_file)  # back

    def pixels(rows: int, columns: int) -> Pixels:
        if rows < image.height:
            image.draft("RGB", (columns, rows))
        if image.mode.startswith("I;16"):
            return np.repeat((np.asarray(image) >> 8).astype(np.uint8)[..., np.newaxis], 3, axis=2)
        if image.mode in ("I", "F"):
            raise UnreadableImage(f"its pixels are numbers of 32 bits (mode {image.mode} of Pillow)")
        return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))

    return _Image(image.height, image.width, orientation, pixels)


def _pillow_image(content: bytes) -> Any:
    try:
        return _pillow().open(io.BytesIO(content), formats=FORMATS)
    except _pillow().DecompressionBombError:
        most = 2 * _pillow().MAX_IMAGE_PIXELS
        raise UnreadableImage(f"it has more than {most:,} pixels, the limit of Pillow") from None


@cache
def _pillow() -> Any:
    warnings.filterwarnings("ignore", module="PIL")  # about unusual metadata
    if find_spec(HEIF_PACKAGE) is not None:
        import_module(HEIF_PACKAGE).register_heif_opener()
    return import_module("PIL.Image")


@cache
def _library(name: str) -> Any:
    """A module that need not be installed, or None."""
    return import_module(name) if find_spec(name) is not None else None


def _has_metadata(content: bytes) -> bool:
    """Whether a JPEG image has a segment before the pixels that can contain an orientation."""
    at = len(JPEG_START) - 1
    while content[at : at + 1] == b"\xff" and (kind := content[at + 1 : at + 2]) not in (PIXELS, b""):
        if kind == METADATA:
            return True
        at += 1 if kind == b"\xff" else 2 + int.from_bytes(content[at + 2 : at + 4])  # fill bytes, or a segment
    return False


def _orientation(image: Any) -> int:
    try:
        value = image.getexif().get(ORIENTATION, UPRIGHT)
    except MemoryError:
        raise
    except Exception:  # Pillow raises many types for damaged metadata, and the pixels can be intact
        return UPRIGHT
    return value if value in range(1, 9) else UPRIGHT


def _turned(pixels: Pixels, orientation: int) -> Pixels:
    """A view of the pixels. Orientations above 4 exchange rows and columns."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in (2, 3, 6, 7) else pixels


def _contiguous(pixels: Pixels) -> Pixels:
    """The same pixels one after the other, in memory that lives until the next image of this thread."""
    if pixels.flags.c_contiguous:
        return pixels
    copy = _scratch("part", pixels.size)[: pixels.size].reshape(pixels.shape)
    np.copyto(copy, pixels)
    return copy


def _scratch(name: str, size: int) -> Pixels:
    """Memory of this thread for each of its images: new pages for each would cost a third of its decoding."""
    scratch: Pixels = _memory.__dict__.get(name, _NOTHING)
    if scratch.size < size:
        scratch = _memory.__dict__[name] = np.empty(size, np.uint8)
    return scratch


def _scaled(part: Pixels, size: int, antialias: bool) -> Pixels:
    """The part scaled by a triangle filter as wide as a pixel of the result, or between its nearest four pixels."""
    library, (height, width, _) = _library("cykooz_resizer"), part.shape
    if library is None:
        return _filtered(part, size) if antialias else _interpolated(part, size)
    source = library.ImageData(width, height, library.PixelType.U8x3, part.tobytes())
    target = library.ImageData(size, size, library.PixelType.U8x3)
    kind = library.Algorithm.convolution if antialias else library.Algorithm.interpolation
    # Its class of algorithms has no constructor for `interpolation`.
    algorithm = SimpleNamespace(algorithm=kind, filter_type=library.FilterType.bilinear, multiplicity=None)
    library.Resizer().resize(source, target, library.ResizeOptions(resize_alg=algorithm))
    return np.frombuffer(target.get_buffer(), np.uint8).reshape(size, size, 3)


def _filtered(part: Pixels, size: int) -> Pixels:
    return np.asarray(_pillow().fromarray(part).resize((size, size), _pillow().Resampling.BILINEAR))


def _interpolated(part: Pixels, size: int) -> Pixels:
    import tensorflow as tf

    with tf.device("CPU:0"):
        scaled = tf.raw_ops.ResizeBilinear(images=part[np.newaxis], size=(size, size), half_pixel_centers=True)
    pixels: Pixels = np.rint(scaled.numpy()[0]).astype(np.uint8)
    return pixels
