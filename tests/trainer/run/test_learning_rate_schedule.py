"""The learning rate over the epochs."""

from typing import Any

import pytest

from horovodjob_trainer.cli.configuration import load_configuration
from horovodjob_trainer.run.optimization.learning_rate_schedule import LearningRateSchedule

STEPS = 10


def schedule(
    *flags: str, epochs: int = 100, base: float | None = 0.1, scaling: str = "linear", first_size: int = 8
) -> LearningRateSchedule:
    configuration = load_configuration([*flags, "--epochs", str(epochs)], environment={})
    return LearningRateSchedule.from_configuration(
        configuration, base=base, scaling=scaling, epochs=epochs, first_size=first_size, steps_per_epoch=STEPS
    )


@pytest.mark.parametrize(
    ("scaling", "size", "rate"), [("linear", 1, 0.1), ("linear", 4, 0.4), ("sqrt", 4, 0.2), ("none", 4, 0.1)]
)
def test_the_rate_grows_with_the_ranks_as_its_scaling_requires(scaling: str, size: int, rate: float) -> None:
    assert schedule("--schedule", "constant", scaling=scaling).rate(3.7, size) == pytest.approx(rate)


def test_a_schedule_of_the_optimizer_is_scaled_and_warmed_up_and_nothing_else() -> None:
    factor = schedule("--warmup-epochs", "5", base=None)
    assert factor.rate(0, 8) == pytest.approx(1 + 7 / 50)
    assert factor.rate(90, 8) == 8


def test_the_decay_of_the_tutorial_is_per_step() -> None:
    assert schedule("--decay", "0.01").rate(5.0, 1) == pytest.approx(0.1 / (1 + 0.01 * 5 * STEPS))


def test_a_warm_up_begins_with_the_rate_of_one_rank_and_ends_with_that_of_the_job() -> None:
    warmup = schedule("--schedule", "constant", "--warmup-epochs", "5")
    rates = [warmup.rate(step / STEPS, 8) for step in range(60)]
    assert rates[0] == pytest.approx(0.1 * (1 + 7 / 50))
    assert rates[49] == pytest.approx(0.8)
    assert rates[:50] == sorted(rates[:50])
    assert rates[50:] == pytest.approx([0.8] * 10)


@pytest.mark.parametrize(
    ("scaling", "size", "flags", "first", "last"),
    [
        ("none", 8, (), 0.0, 0.1),
        ("linear", 1, (), 0.0, 0.1),
        ("linear", 8, ("--warmup-from", "0.02"), 0.02, 0.8),
    ],
)
def test_a_warm_up_begins_with_0_without_scaling_or_with_the_rate_of_its_setting(
    scaling: str, size: int, flags: tuple[str, ...], first: float, last: float
) -> None:
    warmup = schedule("--schedule", "constant", "--warmup-epochs", "5", *flags, scaling=scaling, first_size=size)
    rates = [warmup.rate(step / STEPS, size) for step in range(60)]
    assert rates[0] == pytest.approx(first + (last - first) / 50)
    assert rates[24] == pytest.approx((first + last) / 2)
    assert rates[49:] == pytest.approx([last] * 11)


def test_a_warm_up_continues_from_the_same_rate_on_another_number_of_ranks() -> None:
    rates = [schedule("--schedule", "constant", "--warmup-epochs", "5").rate(2.5, size) for size in (8, 1)]
    assert rates == pytest.approx([0.1 * (1 + 7 * 0.52), 0.1])


def test_the_step_schedule_multiplies_the_rate_at_its_epochs() -> None:
    steps = schedule("--schedule", "step", "--lr-steps", "30,60,80")
    rates = [steps.rate(epoch, 1) for epoch in (0, 29.9, 30, 59.9, 60, 80, 99)]
    assert rates == [pytest.approx(x) for x in (0.1, 0.1, 0.01, 0.01, 1e-3, 1e-4, 1e-4)]


@pytest.mark.parametrize(("epoch", "share"), [(10, 1.0), (55, 0.5), (100, 0.0), (120, 0.0)])
def test_a_cosine_decreases_to_0_after_the_warm_up(epoch: Any, share: float) -> None:
    cosine = schedule("--schedule", "cosine", "--warmup-epochs", "10")
    assert cosine.rate(epoch, 2) == pytest.approx(0.2 * share, abs=1e-12)
