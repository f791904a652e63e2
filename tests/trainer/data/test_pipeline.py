"""The input of a rank: the right examples, moved a little, the same again for the same seed and position."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from horovodjob_trainer.run.augmentation import Augmentation
from horovodjob_trainer.run.pipeline import evaluation_batches

MOVED, MIRRORED, BOTH = Augmentation(shift=0.1), Augmentation(flip=True), Augmentation(shift=0.1, flip=True)


def ramps(count: int = 12, *, width: int = 32) -> Arrays:
    """Pictures whose brightness grows from left to right, a little more in each picture."""
    images = np.zeros((count, 32, width, 3), np.uint8)
    images += (np.arange(width) * 6).astype(np.uint8)[None, None, :, None]
    images += np.arange(count).astype(np.uint8)[:, None, None, None]
    return Arrays(aligned_copy(images), aligned_copy(np.arange(count)), count)


def same(first: Any, second: Any) -> None:
    for (examples, labels), (expected, expected_labels) in zip(first, second, strict=True):
        np.testing.assert_array_equal(examples, expected)
        np.testing.assert_array_equal(labels, expected_labels)


def test_without_augmentation_pictures_are_only_scaled(train: Callable[..., Any]) -> None:
    for images, labels in train(ramps(), 5):
        np.testing.assert_allclose(images, ramps().examples[labels] / 255, rtol=1e-6)


def test_numbers_that_are_no_pictures_stay_as_they_are(train: Callable[..., Any]) -> None:
    values = np.arange(12.0).reshape(6, 2) - 3
    for rows, labels in train(Arrays(values, np.arange(6.0), None), 3, augment=BOTH):
        np.testing.assert_array_equal(rows, values[labels.astype(int)])


def test_a_run_that_goes_on_sees_what_it_would_have_seen_on_any_number_of_threads(train: Callable[..., Any]) -> None:
    whole = train(ramps(), 600, augment=BOTH)
    same(train(ramps(), 2, augment=BOTH, position=4 * 4, threads=1), whole[4:6])
    same(train(ramps(), 100, augment=BOTH, position=500 * 4, threads=5), whole[500:])


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_together_see_what_one_rank_with_the_whole_batch_sees(train: Callable[..., Any], size: Any) -> None:
    whole = train(ramps(), 5, batch=4 * size, augment=BOTH, position=8 * size)
    parts = [train(ramps(), 5, size=size, rank=rank, augment=BOTH, position=8 * size) for rank in range(size)]
    joined = [tuple(np.concatenate(part) for part in zip(*step, strict=True)) for step in zip(*parts, strict=True)]
    same(joined, whole)


def test_a_picture_is_changed_by_its_place_alone_whatever_the_batch(train: Callable[..., Any]) -> None:
    small = np.concatenate([images for images, _ in train(ramps(), 15, batch=4, augment=BOTH)])
    large = np.concatenate([images for images, _ in train(ramps(), 3, batch=20, augment=BOTH)])
    np.testing.assert_array_equal(small, large)


def test_seeds_and_passes_move_a_picture_differently(train: Callable[..., Any]) -> None:
    def by_label(batch: Any) -> Any:
        return batch[0][batch[1].argsort()]

    first, second = train(ramps(), 2, batch=12, augment=MOVED)
    (other,) = train(ramps(), 1, batch=12, augment=MOVED, seed=2)
    for again in (second, other):
        apart = np.abs(by_label(first) - by_label(again)).max(axis=(1, 2, 3))
        assert np.mean(apart > 2e-3) > 0.75  # two may be moved alike by chance


@pytest.mark.parametrize("width", [32, 40])
def test_pictures_are_moved_by_at_most_a_tenth_and_the_edge_is_repeated(train: Any, width: int) -> None:
    source = ramps(width=width)
    most = 0.0
    for images, labels in train(source, 20, augment=MOVED):
        shifts = (images * 255 - source.examples[labels])[:, 16, 16, 0] / 6
        most = max(most, float(np.abs(shifts).max()))
        assert images.min() >= 0  # an empty border would be 0 where no picture is darker than its own edge
        np.testing.assert_array_less(labels / 255 - 1e-5, images.min(axis=(1, 2, 3)))
    assert 0.08 * width < most < 0.1001 * width


def test_half_of_the_pictures_are_mirrored_and_only_on_request(train: Callable[..., Any]) -> None:
    def mirrored(augment: Augmentation) -> float:
        images = np.concatenate([images for images, _ in train(ramps(), 100, augment=augment)])
        return float(np.mean(images[:, 16, 4, 0] > images[:, 16, 27, 0]))

    assert mirrored(MOVED) == 0
    assert 0.4 < mirrored(MIRRORED) < 0.6
    assert 0.4 < mirrored(BOTH) < 0.6


def test_a_mirrored_picture_that_is_not_moved_has_the_same_pixels(train: Callable[..., Any]) -> None:
    for images, labels in train(ramps(), 3, augment=MIRRORED):
        for image, label in zip(images, labels, strict=True):
            original = (ramps().examples[label] * np.float32(1 / 255)).astype(np.float32)
            assert np.array_equal(image, original) or np.array_equal(image, original[:, ::-1])


def test_the_evaluation_sees_every_example_once_over_all_ranks(whole: Callable[..., Any]) -> None:
    assert whole(ramps())[1].tolist() == list(range(12))
    assert sorted(whole(ramps(), size=5)[1]) == list(range(12))
    assert list(evaluation_batches(ramps(2), batch=5, rank=2, size=3)) == []
