"""Images in folders: classes, cache and error messages."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer import data
from horovodjob_trainer.data.reading.example_reader import data_error
from horovodjob_trainer.data.reading.image_pixels import FORMAT_NAMES
from trainer.data.batches import assert_equal


def request(path: Path, **changes: Any) -> data.Request:
    settings: dict[str, Any] = {"dataset": "images", "path": path, "image_size": 24} | changes
    return data.Request(**settings)


def test_labels_are_the_indexes_of_the_sorted_folder_names(tmp_path: Path, folders: Any, whole: Any) -> None:
    folders(tmp_path / "train", zebra=2, ant=3, Bee=2)
    folders(tmp_path / "test", bee=0, ant=1)
    (tmp_path / "test" / "bee").rmdir()
    found = data.load_dataset(request(tmp_path))
    assert found.train.class_names == ("Bee", "ant", "zebra")
    images, labels = whole(found.train)
    assert labels.tolist() == [0, 0, 1, 1, 1, 2, 2]
    np.testing.assert_allclose(images[:, 5, 5, 0] * 255, [5, 6, 2, 3, 4, 0, 1], atol=1e-3)
    assert whole(found.test)[1].tolist() == [1]


def test_the_batches_are_the_same_from_memory_and_from_disk(
    tmp_path: Path, folders: Any, train: Any, whole: Any
) -> None:
    folders(tmp_path, cat=12, dog=9)
    in_memory, on_disk = (data.load_dataset(request(tmp_path, cache=cache)) for cache in ("memory", "none"))
    assert in_memory.fingerprint == on_disk.fingerprint
    assert_equal(train(in_memory.train), train(on_disk.train))
    np.testing.assert_array_equal(whole(in_memory.test, size=2)[0], whole(on_disk.test, size=2)[0])


def test_images_stay_on_the_disk_if_they_exceed_the_memory(tmp_path: Path, folders: Any, problem: Any) -> None:
    folders(tmp_path, cat=4, dog=4)
    assert "images are in memory" in data.load_dataset(request(tmp_path)).remark
    huge: dict[str, Any] = {"dataset": "images", "path": tmp_path, "image_size": 300_000}
    assert "decoded in each epoch" in data.load_dataset(data.Request(**huge)).remark
    assert "give the pod more memory" in problem(**huge, cache="memory", names=tmp_path)


def test_without_a_test_folder_each_class_gives_its_share(tmp_path: Path, folders: Any) -> None:
    folders(tmp_path / "train", cat=20, dog=10)
    found, again = (data.load_dataset(request(tmp_path, validation_share=0.2, cache="none")) for _ in range(2))
    assert (found.train.samples, found.test.samples) == (24, 6)
    names = {found.test.name(row) for row in range(6)}
    assert sum("cat" in name for name in names) == 4
    assert names == {again.test.name(row) for row in range(6)}
    assert not names & {found.train.name(row) for row in range(24)}
    other = data.load_dataset(request(tmp_path, validation_share=0.2, cache="none", seed=2))
    assert other.fingerprint != found.fingerprint


def test_hidden_and_other_files_are_omitted_and_links_and_subfolders_are_followed(
    tmp_path: Path, folders: Any, picture: Any
) -> None:
    tree = folders(tmp_path / "tree", cat=2, dog=2)
    (tree / "cat" / "notes.txt").write_text("no picture")
    (tree / "cat" / "._000.png").write_bytes(b"of a Macintosh")
    (tree / ".snapshot").mkdir()
    (tree / "lost+found").mkdir()
    (tree / "cat" / "deep" / "er").mkdir(parents=True)
    (tree / "cat" / "deep" / "er" / "x.JPG").write_bytes(picture(9, kind="jpg"))
    (tree / "cat" / "loop").symlink_to(tree / "cat")
    elsewhere = folders(tmp_path / "elsewhere", pets=3)
    (tree / "dog" / "more").symlink_to(elsewhere / "pets")
    (tree / "dog" / "again.png").symlink_to(elsewhere / "pets" / "000.png")
    found = data.load_dataset(request(tree, validation_share=0.4, cache="none"))
    assert found.train.class_names == ("cat", "dog")
    assert found.train.samples + found.test.samples == 3 + 6


def test_an_image_is_scaled_and_cropped_to_its_central_square(tmp_path: Path, folders: Any, whole: Any) -> None:
    import tensorflow as tf

    folders(tmp_path, cat=1, dog=2)
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = (np.arange(20) * 10)[None, :, None]
    (tmp_path / "cat" / "000.png").write_bytes(tf.io.encode_png(wide).numpy())
    images, _ = whole(data.load_dataset(request(tmp_path, image_size=10, validation_share=0.3)).train)
    assert images.shape[1:] == (10, 10, 3)
    np.testing.assert_allclose(images[0, 5, :, 0] * 255, np.arange(10) * 20 + 5, atol=4)


@pytest.mark.parametrize(("dataset", "cache"), [("images", "memory"), ("tfrecord", "none")])
def test_the_validation_crop_applies_to_test_images_only(
    copies: Any, whole: Any, train: Any, dataset: str, cache: str
) -> None:
    import tensorflow as tf

    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[:, 10:50] = (np.arange(40) * 6)[None, :, None]  # of the whole square
    path = copies(tf.io.encode_png(pixels).numpy(), "png")
    found = data.load_dataset(request(path, dataset=dataset, cache=cache, image_size=20, validation_crop=0.5))
    np.testing.assert_allclose(whole(found.test)[0][0, 9, :, 0] * 255, np.arange(10, 30) * 6, atol=0.5)
    images = train(found.train, 1, batch=1)[0][0]
    np.testing.assert_allclose(images[0, 9, :, 0] * 255, np.arange(20) * 12 + 3, atol=2)
    predicted = data.unlabelled_examples(path / "test" / "cat", 20, 0.5)
    np.testing.assert_allclose(whole(predicted)[0][0, 9, :, 0] * 255, np.arange(10, 30) * 6, atol=0.5)


@pytest.mark.parametrize("kind", ["cut", "empty"])
def test_an_image_that_cannot_be_read_is_named_at_the_start_or_in_its_step(
    tmp_path: Path, folders: Any, train: Any, problem: Any, kind: str
) -> None:
    folders(tmp_path, cat=20, dog=20)
    bad = tmp_path / "dog" / "007.png"
    bad.write_bytes(bad.read_bytes()[:-30] if kind == "cut" else b"")
    reason = "it is empty" if kind == "empty" else f"it is not a complete {FORMAT_NAMES} image"
    expected = f"{bad} cannot be read: {reason}"
    arguments: dict[str, Any] = {"dataset": "images", "path": tmp_path, "image_size": 24, "validation_share": 0.01}
    assert problem(**arguments, cache="memory").startswith(expected)
    source = data.load_dataset(data.Request(**arguments, cache="none")).train
    with pytest.raises(Exception, match="row") as raised:
        train(source, 20)
    assert str(data_error(raised.value, source)).startswith(expected)


def test_a_file_that_vanishes_during_the_run_is_named(tmp_path: Path, folders: Any, train: Any) -> None:
    folders(tmp_path, cat=4, dog=4)
    source = data.load_dataset(request(tmp_path, cache="none", validation_share=0.01)).train
    os.unlink(source.name(3))
    with pytest.raises(Exception, match="row") as raised:
        train(source)
    assert str(data_error(raised.value, source)) == (
        f"{source.name(3)} cannot be read: No such file or directory; give the job permission to read it, or delete it "
        "(an unfinished training then needs --resume continue)"
    )
    assert data_error(ValueError("another thing"), source) is None


def test_an_invalid_directory_tree_is_rejected_with_the_cause(
    tmp_path: Path, folders: Callable[..., Path], problem: Callable[..., str], picture: Any
) -> None:
    def error(path: Path, *, names: object) -> str:
        return problem(dataset="images", path=path, names=names)

    assert "No such file" in error(tmp_path / "none", names=tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "contains no folders" in error(tmp_path / "empty", names=tmp_path / "empty")
    assert "contains one folder" in error(folders(tmp_path / "one", cat=3), names=tmp_path / "one")
    assert "contains no images" in error(folders(tmp_path / "a", cat=3, dog=0), names=tmp_path / "a" / "dog")
    loose = folders(tmp_path / "b", cat=3, dog=1)
    (loose / "x.png").write_bytes(picture())
    assert "not in a class folder" in error(loose, names=loose / "x.png")
    folders(tmp_path / "c" / "train", cat=2, dog=2)
    folders(tmp_path / "c" / "test", cat=2, cow=2)
    assert "does not have" in error(tmp_path / "c", names=tmp_path / "c" / "test" / "cow")
    folders(tmp_path / "d" / "train", cat=2, dog=2)
    folders(tmp_path / "d" / "test", cat=0)
    assert "contains no images" in error(tmp_path / "d", names=tmp_path / "d" / "test")
