"""The input of a rank: the right images, moved a little, the same again for the same seed and step."""

import os
from itertools import islice
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from horovodjob_trainer.data import Split
from horovodjob_trainer.pipeline import evaluation_batches, training_batches


def ramps(count: int = 12) -> Split:
    """Images whose brightness grows from left to right, a little more in each image."""
    images = np.zeros((count, 32, 32, 3), np.uint8)
    images += (np.arange(32) * 6).astype(np.uint8)[None, None, :, None]
    images += np.arange(count).astype(np.uint8)[:, None, None, None]
    return Split(images, np.arange(count))


def batches(count: int, **settings: Any) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    settings = {"batch": 4, "rank": 0, "size": 1, "seed": 1} | settings
    return [(images.numpy(), labels.numpy()) for images, labels in islice(training_batches(ramps(), **settings), count)]


def test_without_augmentation_images_are_only_scaled() -> None:
    for images, labels in batches(5):
        np.testing.assert_allclose(images, ramps().images[labels] / 255, rtol=1e-6)


def test_a_run_that_goes_on_sees_what_it_would_have_seen() -> None:
    whole = batches(6, augment=True, flip=True)
    later = batches(2, augment=True, flip=True, first_step=4)
    for (images, labels), (expected_images, expected_labels) in zip(later, whole[4:], strict=True):
        np.testing.assert_array_equal(images, expected_images)
        np.testing.assert_array_equal(labels, expected_labels)


def test_ranks_together_see_what_one_rank_with_the_whole_batch_sees() -> None:
    whole = batches(3, batch=8, augment=True, flip=True)
    parts = [batches(3, batch=4, size=2, rank=rank, augment=True, flip=True) for rank in range(2)]
    for step, (images, _) in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([part[step][0] for part in parts]), images)


def test_each_pass_moves_an_image_differently() -> None:
    (first, labels), *_, (second, labels_again) = batches(2, batch=12, augment=True)
    order, order_again = labels.argsort(), labels_again.argsort()
    assert np.abs(first[order] - second[order_again]).max(axis=(1, 2, 3)).min() > 1e-3


def test_images_are_shifted_by_at_most_a_tenth_and_the_edge_is_repeated() -> None:
    for images, labels in batches(20, augment=True):
        shifts = (images * 255 - ramps().images[labels])[:, 16, 16, 0] / 6
        assert np.abs(shifts).max() <= 3.21
        assert images.min() >= 0  # an empty border would be 0 where no image is darker than its own edge
        np.testing.assert_array_less(labels / 255 - 1e-5, images.min(axis=(1, 2, 3)))
    assert np.abs(shifts).max() > 0.1


def test_half_of_the_images_are_mirrored_and_only_on_request() -> None:
    def mirrored(flip: bool) -> float:
        images = np.concatenate([images for images, _ in batches(100, augment=True, flip=flip)])
        return float(np.mean(images[:, 16, 4, 0] > images[:, 16, 27, 0]))

    assert mirrored(False) == 0
    assert 0.4 < mirrored(True) < 0.6


def test_the_evaluation_sees_every_image_once() -> None:
    seen = [labels.numpy() for _, labels in evaluation_batches(ramps(), batch=5)]
    assert np.concatenate(seen).tolist() == list(range(12))
