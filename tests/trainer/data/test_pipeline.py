"""The input pipeline of a rank: examples, augmentation, and the same batches for the same seed and position."""

from collections.abc import Callable
from typing import Any

import numpy as np

from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from horovodjob_trainer.data.reading.augmentation import Augmentation
from horovodjob_trainer.run.pipeline import evaluation_batches
from trainer.data.batches import assert_equal

SHIFTED, FLIPPED, BOTH = Augmentation(shift=0.1), Augmentation(flip=True), Augmentation(shift=0.1, flip=True)


def ramps(count: int = 12, *, width: int = 32) -> Arrays:
    """Images with a brightness that increases from left to right, and from image to image."""
    images = np.zeros((count, 32, width, 3), np.uint8)
    images += (np.arange(width) * 6).astype(np.uint8)[None, None, :, None]
    images += np.arange(count).astype(np.uint8)[:, None, None, None]
    return Arrays(aligned_copy(images), aligned_copy(np.arange(count)), count)


def test_without_augmentation_images_are_only_scaled(train: Callable[..., Any]) -> None:
    for images, labels in train(ramps(), 5):
        np.testing.assert_allclose(images, ramps().examples[labels] / 255, rtol=1e-6)


def test_arrays_that_are_not_images_are_not_changed(train: Callable[..., Any]) -> None:
    values = np.arange(12.0).reshape(6, 2) - 3
    for rows, labels in train(Arrays(values, np.arange(6.0), None), 3, augment=BOTH):
        np.testing.assert_array_equal(rows, values[labels.astype(int)])


def test_a_resumed_run_gets_the_batches_of_an_uninterrupted_run(
    train: Callable[..., Any],
) -> None:
    whole = train(ramps(), 600, augment=BOTH)
    assert_equal(train(ramps(), 2, augment=BOTH, position=4 * 4, threads=1), whole[4:6])
    assert_equal(train(ramps(), 100, augment=BOTH, position=500 * 4, threads=5), whole[500:])


def test_ranks_together_get_the_batch_of_one_rank_with_the_whole_batch_size(train: Callable[..., Any]) -> None:
    size = 3
    whole = train(ramps(), 5, batch=4 * size, augment=BOTH, position=8 * size)
    parts = [train(ramps(), 5, size=size, rank=rank, augment=BOTH, position=8 * size) for rank in range(size)]
    joined = [tuple(np.concatenate(part) for part in zip(*step, strict=True)) for step in zip(*parts, strict=True)]
    assert_equal(joined, whole)


def test_the_step_prepares_batches_as_the_pipeline_does(train: Callable[..., Any]) -> None:
    assert_equal(train(ramps(), 20, augment=BOTH, in_step=True), train(ramps(), 20, augment=BOTH))


def test_seeds_and_passes_have_different_shifts(train: Callable[..., Any]) -> None:
    def by_label(batch: Any) -> Any:
        return batch[0][batch[1].argsort()]

    first, second = train(ramps(), 2, batch=12, augment=SHIFTED)
    (other,) = train(ramps(), 1, batch=12, augment=SHIFTED, seed=2)
    for again in (second, other):
        apart = np.abs(by_label(first) - by_label(again)).max(axis=(1, 2, 3))
        assert np.mean(apart > 2e-3) > 0.75  # two shifts can be equal by chance


def test_images_are_shifted_by_at_most_a_tenth_and_the_edge_is_repeated(train: Any) -> None:
    width = 40
    source, most = ramps(width=width), 0.0
    for images, labels in train(source, 20, augment=SHIFTED):
        shifts = (images * 255 - source.examples[labels])[:, 16, 16, 0] / 6
        most = max(most, float(np.abs(shifts).max()))
        assert images.min() >= 0  # an empty border would be darker than the edge of its image
        np.testing.assert_array_less(labels / 255 - 1e-5, images.min(axis=(1, 2, 3)))
    assert 0.08 * width < most < 0.1001 * width


def test_half_of_the_images_are_flipped_and_only_on_request(train: Callable[..., Any]) -> None:
    def flipped_share(augment: Augmentation) -> float:
        images = np.concatenate([images for images, _ in train(ramps(), 100, augment=augment)])
        return float(np.mean(images[:, 16, 4, 0] > images[:, 16, 27, 0]))

    assert flipped_share(SHIFTED) == 0
    assert 0.4 < flipped_share(FLIPPED) < 0.6
    assert 0.4 < flipped_share(BOTH) < 0.6


def test_a_flipped_image_that_is_not_shifted_has_the_same_pixels(train: Callable[..., Any]) -> None:
    for images, labels in train(ramps(), 3, augment=FLIPPED):
        for image, label in zip(images, labels, strict=True):
            original = (ramps().examples[label] * np.float32(1 / 255)).astype(np.float32)
            assert np.array_equal(image, original) or np.array_equal(image, original[:, ::-1])


def test_the_evaluation_reads_every_example_once_over_all_ranks(whole: Callable[..., Any]) -> None:
    assert whole(ramps())[1].tolist() == list(range(12))
    assert sorted(whole(ramps(), size=5)[1]) == list(range(12))
    assert list(evaluation_batches(ramps(2), batch=5, rank=2, size=3)) == []
