"""RandAugment, mixup and CutMix: functions of the seed and the position, with labels that fit the images."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horovodjob_trainer.data.arrays import Arrays, aligned_copy
from trainer.data.batches import assert_equal

CLASSES = 12
Train = Callable[..., Any]


@pytest.fixture(scope="module")
def plain() -> Arrays:
    """Images of one brightness each, which is 20 times the label."""
    images = np.repeat(np.arange(CLASSES, dtype=np.uint8) * 20, 16 * 16 * 3).reshape(CLASSES, 16, 16, 3)
    return Arrays(aligned_copy(images), aligned_copy(np.arange(CLASSES)), CLASSES)


@pytest.fixture(scope="module")
def noisy() -> Arrays:
    images = np.random.default_rng(0).integers(0, 256, (CLASSES, 16, 16, 3)).astype(np.uint8)
    return Arrays(aligned_copy(images), aligned_copy(np.arange(CLASSES)), CLASSES)


def test_a_resumed_run_mixes_the_images_as_an_uninterrupted_run_does(train: Train, noisy: Arrays) -> None:
    settings = {"mixup": 0.2, "cutmix": 1.0}
    whole = train(noisy, 12, **settings)
    assert_equal(train(noisy, 4, position=8 * 4, threads=1, **settings), whole[8:])
    assert_equal(train(noisy, 4, in_step=True, **settings), whole[:4])
    other = train(noisy, 4, seed=2, **settings)
    assert all(not np.array_equal(images, others) for (images, _), (others, _) in zip(whole, other, strict=False))


def test_a_resumed_rank_changes_the_images_as_one_rank_with_the_whole_batch_does(train: Train, noisy: Arrays) -> None:
    whole = train(noisy, 6, batch=8, rand_augment=0.3)
    second = train(noisy, 3, batch=4, size=2, rank=1, position=3 * 8, rand_augment=0.3, threads=1)
    assert_equal(second, [(images[4:], labels[4:]) for images, labels in whole[3:]])


def test_each_image_gets_random_operations_of_its_own(train: Train, noisy: Arrays) -> None:
    same = Arrays(aligned_copy(np.repeat(noisy.examples[:1], CLASSES, 0)), noisy.labels, CLASSES)
    images = np.concatenate([images for images, _ in train(same, 6, rand_augment=0.3)])
    assert 0 <= images.min() <= images.max() <= 1
    assert len({image.tobytes() for image in images}) > 18  # of 24; two can get the same operations


def test_a_higher_strength_changes_the_images_more(noisy: Arrays) -> None:
    """Each operation for itself: of two random ones, only some depend on the strength."""
    import tensorflow as tf

    from horovodjob_trainer.run.augmentation import PositionSeeds, RandomAugment

    images = tf.cast(noisy.examples, tf.float32)
    weak, strong = (RandomAugment(strength, noisy.shape, 1).operations for strength in (0.1, 0.9))
    apart = {}
    for one, other in zip(weak, strong, strict=True):
        changes = [
            each.transform_images(
                images, each.get_random_transformation(images, seed=PositionSeeds(1, tf.constant(0, tf.int64), 0))
            )
            for each in (one, other)
        ]
        apart[one.name] = [float(np.abs(changed - images).mean()) for changed in changes]
    with_strength = {name: each for name, each in apart.items() if each[0] != each[1]}
    assert len(with_strength) == len(weak) - 2  # the contrast and the histogram have none
    assert {name: each for name, each in with_strength.items() if not each[0] < each[1] / 2} == {}


def test_an_image_of_mixup_is_the_mean_of_two_with_the_shares_of_its_labels(train: Train, plain: Arrays) -> None:
    shares = []
    for images, labels in train(plain, 10, batch=6, mixup=1.0):
        np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-5)
        assert ((labels > 0).sum(axis=1) <= 2).all()
        expected = labels @ np.arange(CLASSES) * 20 / 255
        np.testing.assert_allclose(images, np.broadcast_to(expected[:, None, None, None], images.shape), atol=1e-5)
        shares += labels.max(axis=1).tolist()
    assert np.mean(np.array(shares) < 0.9) > 0.4  # the shares are uniformly distributed


def test_an_image_of_cutmix_has_a_rectangle_of_another_with_the_share_of_its_label(train: Train, plain: Arrays) -> None:
    mixed = 0
    for images, labels in train(plain, 10, batch=6, cutmix=1.0):
        for image, label in zip(np.rint(images[..., 0] * 255 / 20), labels, strict=True):
            assert label.sum() == pytest.approx(1, rel=1e-5)
            found = {int(value): float(np.mean(image == value)) for value in np.unique(image)}
            assert len(found) <= 2
            for number, share in found.items():
                assert label[number] == pytest.approx(share, abs=0.13)  # a row and a column of 16 pixels
            mixed += len(found) == 2
    assert mixed > 30  # of 60


def test_with_mixup_and_cutmix_half_of_the_batches_get_either(train: Train, plain: Arrays) -> None:
    batches = train(plain, 60, batch=6, mixup=1.0, cutmix=1.0)
    by_mixup = [np.ptp(images, axis=(1, 2, 3)).max() < 1e-6 for images, _ in batches]
    assert 15 < sum(by_mixup) < 45
