"""What the time of the ranks was used for, and which rank is slow."""

import pytest

from horovodjob_trainer.watch import activity
from horovodjob_trainer.watch.activity import Activity, Field
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.usage import SlowRank, SlowRanks, Usage, seconds_by_cause
from trainer.watch.test_judgement import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(activity, "time", clock)
    return clock


def spend(clock: Clock, rank: Activity, section: Section, seconds: float) -> None:
    with rank.section(section):
        clock.now += seconds


def test_each_second_of_a_rank_has_one_cause(clock: Clock) -> None:
    rank = Activity()
    rank.enter(Section.START)
    clock.now += 90
    rank.complete_step(101)
    for step in range(102, 202):
        spend(clock, rank, Section.INPUT, 0.1)
        clock.now += 0.5
        with rank.exchange(), rank.exchange():
            clock.now += 0.2
        rank.complete_step(step)
    spend(clock, rank, Section.VALIDATION, 30)
    spend(clock, rank, Section.CHECKPOINT, 20)
    clock.now += 4000  # a stall
    rank.complete_step(202)
    clock.now += 3
    assert seconds_by_cause(rank, 3, is_stalled=False) == pytest.approx(
        {
            "setup": 90,
            "input": 10,
            "steps": 53,
            "exchange": 20,
            "validation": 30,
            "checkpoints": 20,
            "stalled": 4000,
        }
    )
    assert (rank[Field.FIRST_STEP], rank[Field.HAS_POSITION]) == (100, 1)
    assert seconds_by_cause(rank, 3, is_stalled=True)["stalled"] == pytest.approx(4003)


def test_a_training_that_does_not_know_its_position_has_none(clock: Clock) -> None:
    rank = Activity()
    rank.enter(Section.START)
    rank.complete_step()
    assert not rank[Field.HAS_POSITION]


def after(seconds: float, *own: tuple[float, float], step: float = 1.0) -> dict[int, Usage]:
    """Ranks of a training whose steps last a second, with their own times of a step: input and computation."""
    steps = seconds / step
    return {
        rank: Usage(at=seconds, steps=steps, input=steps * given, compute=steps * computed)
        for rank, (given, computed) in enumerate(own)
    }


EVEN = ((0.1, 0.5),) * 3


@pytest.mark.parametrize(
    ("slow", "section", "ratio"),
    [((0.5, 0.5), "input", 1.67), ((0.1, 0.8), "compute", 1.5)],
)
def test_a_rank_that_is_slower_by_a_third_for_a_minute_is_named_with_its_section(
    slow: tuple[float, float], section: str, ratio: float
) -> None:
    ranks = SlowRanks()
    found = [ranks.add(at, after(at, *EVEN, slow)) for at in (20, 40, 60, 80, 100)]
    assert found[:3] == [None] * 3
    assert found[3] == found[4] is not None
    assert (found[4].rank, found[4].section) == (3, section)
    assert found[4].ratio == pytest.approx(ratio, abs=0.01)


def test_a_rank_that_is_slow_for_a_while_only_is_not_named() -> None:
    ranks = SlowRanks()
    usage = {rank: Usage(0, 0, 0, 0) for rank in range(2)}
    for at in range(20, 400, 20):
        extra = 10 if (at // 20) % 3 == 0 else 0
        usage = {rank: Usage(at, at, 0, each.compute + 10 + (extra if rank else 0)) for rank, each in usage.items()}
        assert ranks.add(at, usage) is None


def test_of_two_ranks_the_slower_one_is_named() -> None:
    ranks = SlowRanks()
    found = [ranks.add(at, after(at, (0.0, 0.9), (0.0, 0.5))) for at in (20, 40, 60, 80)]
    assert found[-1] == SlowRank(0, 1.8, "")


def test_what_is_small_in_a_step_is_no_slow_rank() -> None:
    ranks = SlowRanks()
    assert [ranks.add(at, after(at, (0.0, 0.01), (0.0, 0.03))) for at in (20, 40, 60, 80, 100)] == [None] * 5


def test_a_rank_without_an_answer_or_without_steps_is_not_compared() -> None:
    ranks = SlowRanks()
    for at in (20, 40, 60, 80, 100):
        usage = after(at, *EVEN)
        usage[2] = Usage(at, 5, 0, 5)
        if at == 60:
            del usage[1]
        assert ranks.add(at, usage) is None


def test_64_ranks_with_one_slow_one() -> None:
    ranks = SlowRanks()
    own = [(0.02, 0.3 + 0.0005 * rank) for rank in range(64)]
    own[41] = (0.02, 0.6)
    found = [ranks.add(at, after(at, *own)) for at in (20, 40, 60, 80)]
    assert found[-1] is not None
    assert found[-1].rank == 41
