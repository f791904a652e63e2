"""Formats and EXIF orientations of images, and the pixels of each way to decode them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from horovodjob_trainer import data
from horovodjob_trainer.data.formats.image_folder import image_error
from horovodjob_trainer.data.indexes.image_index import Tree, other_files_text
from horovodjob_trainer.data.reading import image_decoding, image_pixels
from horovodjob_trainer.data.reading.image_decoding import central_square, image_or_none, random_crop

ORIENTATION = 0x0112
TURNS: dict[int, Callable[[Any], Any]] = {  # from the pixels of a file to those that are shown
    1: lambda pixels: pixels,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: np.swapaxes(pixels, 0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.swapaxes(np.rot90(pixels, 2), 0, 1),
    8: np.rot90,
}


def encoded(pixels: Any, kind: str, orientation: int | None = None, **options: Any) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    if orientation is not None:
        exif[ORIENTATION] = orientation
    Image.fromarray(pixels).save(file, kind, exif=exif, **options)
    return file.getvalue()


def blocks() -> Any:
    """An image whose orientation and place are visible: colors of 16 x 16 pixels, wider than high."""
    colors = np.random.default_rng(0).integers(0, 256, (3, 5, 3))
    return np.repeat(np.repeat(colors, 16, 0), 16, 1).astype(np.uint8)


def photograph(height: int, width: int) -> Any:
    coarse = np.random.default_rng(0).integers(0, 256, (height // 16, width // 16, 3))
    noise = np.random.default_rng(1).normal(0, 8, (height, width, 3))
    return np.clip(tf.image.resize(coarse, (height, width), "bicubic") + noise, 0, 255).astype(np.uint8)


def request(path: Path, **changes: Any) -> data.Request:
    settings: dict[str, Any] = {"dataset": "images", "path": path, "image_size": 48, "cache": "none"} | changes
    return data.Request(**settings)


@pytest.fixture(params=["fast", "Pillow only"])
def decoders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "Pillow only":
        monkeypatch.setattr(image_pixels, "_library", lambda name: None)
    return str(request.param)


@pytest.mark.parametrize(
    ("kind", "orientation"), [*(("JPEG", each) for each in sorted(TURNS)), ("PNG", 6), ("WEBP", 5), ("TIFF", 8)]
)
def test_an_image_is_turned_to_its_exif_orientation_unless_it_is_ignored(
    decoders: str, kind: str, orientation: int
) -> None:
    options = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    content = encoded(blocks(), kind, orientation, **options)
    for exif, shown in ((True, TURNS[orientation](blocks())), (False, blocks())):
        height, width, _ = shown.shape
        top, left = (height - 48) // 2, (width - 48) // 2
        square = central_square(48, exif=exif)(content, 0)
        np.testing.assert_allclose(square.astype(int), shown[top : top + 48, left : left + 48], atol=6)
        plain = encoded(shown, kind, **options)
        crop, expected = random_crop(32, 1, exif=exif)(content, 5), random_crop(32, 1)(plain, 5)
        np.testing.assert_allclose(crop.astype(int), expected, atol=12)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_an_image_with_damaged_exif_data_is_read_as_it_is_stored(decoders: str, kind: str) -> None:
    file = io.BytesIO()
    Image.fromarray(blocks()).save(file, kind, exif=b"Exif\0\0XX\0*\0\0\0\x08", lossless=True)
    for exif in (True, False):
        assert (central_square(48, exif=exif)(file.getvalue(), 0) == blocks()[:, 16:64]).all()


def test_both_decoders_find_an_orientation_that_a_jpeg_image_has_as_xmp_data(decoders: str) -> None:
    file = io.BytesIO()
    xmp = b'<rdf:RDF><rdf:Description tiff:Orientation="6"/></rdf:RDF>'
    Image.fromarray(blocks()).save(file, "JPEG", quality=95, subsampling=0, xmp=xmp)
    square = central_square(48)(file.getvalue(), 0)
    np.testing.assert_allclose(square.astype(int), TURNS[6](blocks())[16:64], atol=6)


def test_the_orientation_applies_to_training_validation_prediction_and_records(
    copies: Any, whole: Any, train: Any
) -> None:
    path = copies(encoded(blocks(), "JPEG", 6, quality=95, subsampling=0), "jpg")
    turned, stored = TURNS[6](blocks())[16:64], blocks()[:, 16:64]
    for exif, expected in ((True, turned), (False, stored)):
        images = [data.unlabelled_examples(path / "test", 48, exif=exif)]
        for dataset, cache in (("images", "none"), ("images", "memory"), ("tfrecord", "none")):
            found = data.load_dataset(request(path, dataset=dataset, cache=cache, exif=exif))
            images += [found.test]
            np.testing.assert_allclose(train(found.train, 1, batch=1)[0][0][0] * 255, expected, atol=6)
        for source in images:
            np.testing.assert_allclose(whole(source)[0][0] * 255, expected, atol=6)


@pytest.mark.parametrize(
    ("kind", "suffix"), [("WEBP", ".webp"), ("TIFF", ".tif"), ("AVIF", ".avif"), ("JPEG", ".jfif"), ("HEIF", ".HEIC")]
)
def test_images_of_other_formats_are_listed_and_read(tmp_path: Path, whole: Any, kind: str, suffix: str) -> None:
    if kind == "HEIF":
        import pillow_heif

        pillow_heif.register_heif_opener()
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(2):
            (tmp_path / name / f"{number}{suffix}").write_bytes(encoded(blocks(), kind, quality=100))
    found = data.load_dataset(request(tmp_path, validation_share=0.5))
    for source in (found.train, found.test, data.unlabelled_examples(tmp_path, 48)):
        np.testing.assert_allclose(whole(source)[0][0, 4::16, 4::16] * 255, blocks()[4::16, 20:64:16], atol=12)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK", "I;16"])
def test_every_kind_of_pixel_becomes_three_bytes(decoders: str, mode: str) -> None:
    gray = np.repeat(np.arange(48, dtype=np.uint8)[np.newaxis] * 5, 48, axis=0)
    if mode == "I;16":
        image = Image.fromarray(gray.astype(np.uint16) << 8)
    else:
        image = Image.fromarray(np.stack([gray] * 3, axis=2)).convert(mode)
    file = io.BytesIO()
    image.save(file, "JPEG" if mode == "CMYK" else "PNG")
    pixels = central_square(48)(file.getvalue(), 0)
    expected = np.asarray(image.convert("RGB"))[..., 0] if mode in ("1", "P") else gray
    np.testing.assert_allclose(pixels[..., 0].astype(int), expected, atol=3)


@pytest.mark.parametrize(
    ("image", "reason"),
    [(Image.new("F", (8, 8)), "its pixels are numbers of 32 bits (mode F of Pillow)"),
     (Image.new("1", (20_000, 20_000)), "it has more than 178,956,970 pixels, the limit of Pillow")],
)  # fmt: skip
def test_a_complete_image_that_cannot_be_read_has_its_own_reason(tmp_path: Path, image: Any, reason: str) -> None:
    file = tmp_path / "image.tif"
    image.save(file)
    assert str(image_error(str(file), 16)).startswith(f"{file} cannot be read: {reason}; replace it")


def test_files_that_are_no_images_are_counted_and_named_once(tmp_path: Path, folders: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("horovodjob_trainer.data.indexes.image_index.SUFFIXES", image_pixels.ALWAYS_READ)
    folders(tmp_path, cat=4, dog=4)
    (tmp_path / "cat" / "deep").mkdir()
    for name in ("phone.HEIC", "deep/other.heic", "notes.txt", "README", ".hidden"):
        (tmp_path / "cat" / name).write_bytes(b"x")
    expected = (
        "8 of 12 files listed: the others are no images that can be read (1 without a suffix, 2 .heic, 1 .txt); "
        "install the package pillow-heif to read .heic and .heif"
    )
    for _ in range(2):  # the second time from the index
        lines: list[str] = []
        data.load_dataset(request(tmp_path), data.Ranks(log=lines.append, note=lines.append))
        assert [line for line in lines if " files listed" in line] == [expected]
    notes: list[str] = []
    data.unlabelled_examples(tmp_path, 48, log=notes.append)
    assert notes == [expected]
    others = {".txt": 9, ".csv": 8} | {f".{number:04}": 1 for number in range(1000)}
    assert other_files_text([Tree([], [], ["0.png"], others)]).endswith("8 .csv, 9 .txt, 997 with other suffixes)")


def test_a_package_for_more_formats_makes_the_index_obsolete(tmp_path: Path, folders: Any, monkeypatch: Any) -> None:
    place = "horovodjob_trainer.data.indexes.image_index.SUFFIXES"
    folders(tmp_path, cat=4, dog=4)
    (tmp_path / "cat" / "phone.heic").write_bytes(b"x")
    samples = []
    for suffixes in (image_pixels.ALWAYS_READ, (*image_pixels.ALWAYS_READ, ".heic")):
        monkeypatch.setattr(place, suffixes)
        found = data.load_dataset(request(tmp_path))
        samples.append(found.train.samples + found.test.samples)
    assert samples == [8, 9]


@pytest.mark.parametrize("antialias", [True, False])
def test_both_decoders_have_the_pixels_of_tensorflow(decoders: str, antialias: bool) -> None:
    """Within 1 of 255 with the fast libraries, and within 6 with Pillow, whose cosine transform is more exact."""
    content = encoded(photograph(368, 496), "JPEG", quality=90)
    image = tf.io.decode_image(content, channels=3)[:, 64:432]
    expected = np.clip(np.rint(tf.image.resize(image, (224, 224), antialias=antialias)), 0, 255)
    square = image_pixels.image_part(content, lambda h, w: (0, 64, h, h), 224, antialias=antialias)
    np.testing.assert_allclose(square.astype(int), expected, atol=1 if decoders == "fast" else 6)


def test_a_large_jpeg_image_is_decoded_at_a_fraction_of_its_size(decoders: str) -> None:
    content = encoded(photograph(960, 1280), "JPEG", quality=90)
    image = tf.io.decode_image(content, channels=3)[:, 160:1120]
    expected = np.rint(tf.image.resize(image, (96, 96), antialias=True))
    difference = np.abs(central_square(96)(content, 0).astype(int) - expected)
    assert difference.mean() < 1.5
    assert difference.max() <= 10


def test_a_random_crop_is_scaled_as_by_tensorflow() -> None:
    content = encoded(photograph(368, 496), "PNG")
    image = tf.io.decode_image(content, channels=3)
    for position in range(8):
        top, left, height, width = image_decoding._window(368, 496, 7, position)
        part = tf.image.resize(image[top : top + height, left : left + width], (96, 96))
        np.testing.assert_allclose(random_crop(96, 7)(content, position).astype(int), np.rint(part), atol=1)


def test_random_crops_have_the_areas_and_ratios_of_the_recipe_anywhere_in_the_image() -> None:
    height, width = 368, 496
    parts = np.array([image_decoding._window(height, width, 7, position) for position in range(2000)])
    ends = parts[:, :2] + parts[:, 2:]
    assert parts.min(axis=0).tolist()[:2] == [0, 0]
    assert (ends <= [height, width]).all()
    assert (ends.max(axis=0) >= np.floor([0.98 * height, 0.98 * width])).all()
    ratios, areas = parts[:, 3] / parts[:, 2], parts[:, 2] * parts[:, 3] / (height * width)
    assert 0.73 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < 1.36
    assert 0.07 < areas.min() < 0.09
    assert 0.95 < areas.max() <= 1
    others = [image_decoding._window(height, width, seed, 0) for seed in range(20)]
    assert len(set(others)) > 5
    assert others[7] == tuple(parts[0])
    # An image without room for a crop gives its centre.
    assert image_decoding._window(10, 1000, 1, 0) == (0, 493, 10, 13)
    assert image_decoding._window(1000, 3, -1, 2**40) == (498, 0, 4, 3)
    assert image_decoding._window(1, 1, 1, 0) == (0, 0, 1, 1)


def test_exif_data_are_found_where_a_jpeg_image_has_them(decoders: str) -> None:
    content = encoded(blocks(), "JPEG", 6, quality=95, subsampling=0)
    at = content.index(b"Exif") - 4
    profile = b"\xff\xe2" + (60_000).to_bytes(2) + bytes(59_998)
    after_profile = content[:at] + profile + b"\xff" + content[at:]  # with a fill byte
    comment = b"\xff\xfe" + (100).to_bytes(2) + content[at + 2 :][:98]
    plain = encoded(blocks(), "JPEG", quality=95, subsampling=0)
    for each, is_turned in ((after_profile, True), (plain[:2] + comment + plain[2:], False)):
        square = central_square(48)(each, 0)
        shown = TURNS[6](blocks())[16:64] if is_turned else blocks()[:, 16:64]
        np.testing.assert_allclose(square.astype(int), shown, atol=6)
    assert [image_or_none(central_square(48), content[:end], 0) for end in (3, 4, 5, at + 6)] == [None] * 4
