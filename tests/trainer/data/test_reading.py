"""Image files: parallel reads, random crops, and one cache for the ranks of a node."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from horovodjob_trainer import data
from horovodjob_trainer.data.formats.image_folder import ImageFiles
from horovodjob_trainer.run.pipeline import evaluation_batches, training_batches
from trainer.data.batches import assert_equal, on_ranks

AT_ONCE = 16


def request(path: Path, **changes: Any) -> data.Request:
    settings: dict[str, Any] = {"dataset": "images", "path": path, "image_size": 24} | changes
    return data.Request(**settings)


def test_many_files_are_read_at_once_and_keep_their_order(tmp_path: Path, folders: Any, train: Any) -> None:
    folders(tmp_path, cat=2 * AT_ONCE, dog=2 * AT_ONCE)
    expected = data.load_dataset(request(tmp_path, cache="none", validation_share=0.01)).train
    assert isinstance(expected, ImageFiles)
    barrier = threading.Barrier(AT_ONCE)

    class Together(ImageFiles):
        def content(self, row: Any) -> tuple[Any, Any]:
            number = tf.numpy_function(lambda: np.int64(barrier.wait(timeout=20)), [], tf.int64)
            with tf.control_dependencies([number]):
                return super().content(row)

    source = Together(expected.files, expected.labels, expected.class_names, expected.size, expected.root)
    together = train(source, 2, batch=AT_ONCE, threads=1, count=2)
    assert_equal(together, train(expected, 2, batch=AT_ONCE))


def test_the_host_passes_images_as_bytes(tmp_path: Path, folders: Any) -> None:
    folders(tmp_path, cat=4, dog=4)
    for cache in ("none", "memory"):
        source = data.load_dataset(request(tmp_path, cache=cache)).train
        assert training_batches(source, data.Steps(batch=2, seed=1)).element_spec[1].dtype == tf.uint8


@pytest.fixture(scope="module")
def ramps(tmp_path_factory: pytest.TempPathFactory, records: Any) -> Path:
    """Images in two formats that increase from left to right in red and from top to bottom in green."""
    root = tmp_path_factory.mktemp("ramps")
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(80) * 3, np.arange(60)[:, None] * 4
    for name, encoded in {"jpg": tf.io.encode_jpeg(pixels, quality=100), "png": tf.io.encode_png(pixels)}.items():
        (root / name).mkdir()
        for number in range(8):
            (root / name / f"{number}.{name}").write_bytes(encoded.numpy())
    records(root / "train.tfrecord", [0, 1] * 4, image=encoded.numpy())
    return root


@pytest.mark.parametrize("dataset", ["images", "tfrecord"])
def test_random_crops_are_parts_of_the_image_and_the_same_after_a_resume(
    ramps: Path, train: Callable[..., Any], dataset: str
) -> None:
    found = data.load_dataset(request(ramps, dataset=dataset, crop="random", cache="auto", validation_share=0.1))
    assert "decoded in each epoch" in found.remark
    whole = train(found.train, 8, crop=True, threads=3)
    resumed = train(found.train, 4, crop=True, position=4 * 4)
    assert_equal(resumed, whole[4:])
    images = np.concatenate([images for images, _ in whole]) * 255
    widths = (images[:, 12, 23, 0] - images[:, 12, 0, 0]) / 3 * 24 / 23
    heights = (images[:, 23, 12, 1] - images[:, 0, 12, 1]) / 4 * 24 / 23
    areas = widths * heights / (60 * 80)
    assert len({round(float(area), 3) for area in areas}) > 20
    assert areas.min() > 0.06
    assert areas.min() < 0.4 < areas.max() < 1.05
    assert ((widths / heights > 0.7) & (widths / heights < 1.42)).all()


def test_the_ranks_of_a_node_share_one_cache_and_each_reads_a_part_of_the_files(
    tmp_path: Path, folders: Any, whole: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders(tmp_path, cat=9, dog=8)
    read: list[int] = []
    content = ImageFiles.content

    def recorded(self: ImageFiles, row: Any) -> tuple[Any, Any]:
        tf.numpy_function(lambda number: read.append(int(number)), [row], [])
        return content(self, row)

    monkeypatch.setattr(ImageFiles, "content", recorded)
    first, second = on_ranks(lambda ranks: data.load_dataset(request(tmp_path), ranks), 2)
    assert "images are in memory, once for 2 ranks: " in first.remark
    assert "half of what is free" in first.remark
    assert len(read) == first.train.samples + first.test.samples == 17
    monkeypatch.undo()
    on_disk = data.load_dataset(request(tmp_path, cache="none"))
    for part in ("train", "test"):
        for found in (first, second):
            assert_equal([whole(getattr(found, part))], [whole(getattr(on_disk, part))])
    arrays: Any = (first.train, second.train)
    arrays[0].examples[3] = 77
    assert (arrays[1].examples[3] == 77).all()


def test_an_evaluation_knows_its_number_of_batches(tmp_path: Path, folders: Any) -> None:
    folders(tmp_path / "train", cat=4, dog=4)
    folders(tmp_path / "test", cat=7, dog=4)
    test = data.load_dataset(request(tmp_path, cache="none")).test
    batches = evaluation_batches(test, batch=2, rank=1, size=2)  # without it, Keras warns at the end
    assert int(batches.cardinality()) == len(list(batches)) == 3
