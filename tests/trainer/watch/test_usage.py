"""What the time of the ranks was used for, and which rank is slow."""

import random
from contextlib import nullcontext
from dataclasses import replace

import pytest

from horovodjob_trainer.errors import UsageError
from horovodjob_trainer.watch import activity
from horovodjob_trainer.watch.activity import Activity, Field
from horovodjob_trainer.watch.sections import Section
from horovodjob_trainer.watch.start import seconds_of
from horovodjob_trainer.watch.usage import SlowRank, SlowRanks, Usage, WaitedSeconds, seconds_by_cause
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


@pytest.mark.parametrize("is_in_graph", [False, True])
def test_a_wait_for_another_rank_in_a_stall_is_not_a_part_of_the_steps_before(clock: Clock, is_in_graph: bool) -> None:
    rank, waited = Activity(), 0.0

    def sample() -> None:  # what the graph has recorded, which is read once a second
        rank[Field.WAITED_IN_GRAPH] = waited

    def exchange(seconds: float) -> None:
        nonlocal waited
        if is_in_graph:
            clock.now += seconds
            waited += seconds
        else:
            with rank.exchange():
                clock.now += seconds

    rank.sample = sample
    rank.enter(Section.START)
    rank.complete_step(1)
    for step in range(2, 203):
        clock.now += 0.8
        exchange(4000 if step == 102 else 0.2)
        rank.complete_step(step)
        sample()
    causes = seconds_by_cause(rank, 0, is_stalled=False)
    assert (causes["steps"], causes["exchange"], causes["stalled"]) == pytest.approx((160, 40, 4000.8), abs=0.3)
    assert Usage.of(rank).compute == pytest.approx(160, abs=0.3)


def test_a_training_that_does_not_know_its_position_has_none(clock: Clock) -> None:
    rank = Activity()
    rank.enter(Section.START)
    rank.complete_step()
    assert not rank[Field.HAS_POSITION]


def after(seconds: float, *own: tuple[float, float], step: float = 1.0) -> dict[int, Usage]:
    """Ranks of a training whose steps last a second, with their own times of a step: input and computation."""
    steps = seconds / step
    return {
        rank: Usage(trained=seconds, steps=steps, input=steps * given, compute=steps * computed)
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
    found = [ranks.add(after(at, *EVEN, slow)) for at in (20, 40, 60, 80, 100)]
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
        assert ranks.add(usage) is None


def test_of_two_ranks_the_slower_one_is_named() -> None:
    ranks = SlowRanks()
    found = [ranks.add(after(at, (0.0, 0.9), (0.0, 0.5))) for at in (20, 40, 60, 80)]
    assert found[-1] == SlowRank(0, 1.8, "")


def test_what_is_small_in_a_step_is_no_slow_rank() -> None:
    ranks = SlowRanks()
    assert [ranks.add(after(at, (0.0, 0.01), (0.0, 0.03))) for at in (20, 40, 60, 80, 100)] == [None] * 5


def test_a_rank_without_an_answer_or_without_steps_is_not_compared() -> None:
    ranks = SlowRanks()
    for at in (20, 40, 60, 80, 100):
        usage = after(at, *EVEN)
        usage[2] = Usage(at, 5, 0, 5)
        if at == 60:
            del usage[1]
        assert ranks.add(usage) is None


@pytest.mark.parametrize("is_in_graph", [False, True])
@pytest.mark.parametrize("moment", [0.0, 0.5, 1.0])
def test_steps_as_long_as_a_comparison_are_compared_as_wholes(clock: Clock, is_in_graph: bool, moment: float) -> None:
    """Rank 0 waits 15 of 20 s for rank 1. The comparisons are in the middle of steps, also between wait and end."""
    waiting, slow, ranks = Activity(), Activity(), SlowRanks()
    waited = 0.0

    def sample() -> None:
        waiting[Field.WAITED_IN_GRAPH] = waited

    def compare() -> None:
        found.append(ranks.add({0: Usage.of(waiting), 1: Usage.of(slow)}))

    waiting.sample = sample
    waiting.enter(Section.START)
    slow.enter(Section.START)
    found: list[SlowRank | None] = []
    for step in range(1, 9):
        clock.now += 5
        compare()
        with nullcontext() if is_in_graph else waiting.exchange():
            clock.now += 15
        waited += 15 * (is_in_graph and step > 1)  # the first step is a part of the start
        clock.now += moment
        compare()
        clock.now += 1 - moment
        for rank in (waiting, slow):
            rank.complete_step(step)
    assert found[:8] == [None] * 8
    assert [each and (each.rank, round(each.ratio, 2)) for each in found[-8:]] == [(1, 3.5)] * 8


def test_a_validation_hides_no_slow_rank(clock: Clock) -> None:
    """Rank 0 waits 0.6 s of each step for rank 1."""
    pair, ranks = (Activity(), Activity()), SlowRanks()
    named: list[int | None] = []
    for each in pair:
        each.enter(Section.START)
        each.complete_step(1)
    for step in range(2, 302):
        if step == 152:
            for each in pair:
                each.enter(Section.VALIDATION)
            clock.now += 600
            for each in pair:
                each.enter(Section.STEP)
        clock.now += 0.4
        with pair[0].exchange():
            clock.now += 0.6
        for each in pair:
            each.complete_step(step)
        if step % 20 == 0:
            found = ranks.add({rank: Usage.of(each) for rank, each in enumerate(pair)})
            named.append(found.rank if found else None)
    assert named == [None] * 3 + [1] * 12


def test_one_slow_step_after_a_validation_makes_no_slow_rank() -> None:
    ranks = SlowRanks()
    for at in (100, 120):
        assert ranks.add(after(at, *EVEN)) is None
    usage = after(132, *EVEN)
    usage[2] = replace(usage[2], steps=121, input=usage[2].input + 12)
    assert ranks.add(usage) is None


def course(ranks: SlowRanks, *own_by_comparison: tuple[float, ...]) -> list[int | None]:
    """The slow rank after each of these comparisons, of ranks with these times of a step."""
    usage = {rank: Usage(0, 0, 0, 0) for rank in range(len(own_by_comparison[0]))}
    found = []
    for own in own_by_comparison:
        usage = {
            rank: Usage(each.trained + 20, each.steps + 20, 0, each.compute + 20 * own[rank])
            for rank, each in usage.items()
        }
        slow = ranks.add(usage)
        found.append(slow.rank if slow else None)
    return found


def test_a_named_rank_stays_until_it_is_clearly_not_slow() -> None:
    slow, barely, fast = (0.3, 0.3, 0.45), (0.3, 0.3, 0.38), (0.3, 0.3, 0.31)
    assert course(SlowRanks(), *(slow,) * 5, barely, barely, fast, barely, slow) == [
        *[None] * 3,
        2,
        2,
        2,
        2,
        None,
        None,
        None,
    ]
    assert course(SlowRanks(), *(barely,) * 6) == [None] * 6


def test_of_two_slow_ranks_one_is_named_and_not_both_in_turns() -> None:
    turns = [(0.3, 0.3, 0.3, 0.6 + 0.05 * (number % 2), 0.65 - 0.05 * (number % 2)) for number in range(9)]
    (named,) = {rank for rank in course(SlowRanks(), *turns) if rank is not None}
    assert named == 3
    clearly = (0.3, 0.3, 0.3, 0.6, 0.9)
    assert course(SlowRanks(), *turns[:5], *(clearly,) * 2)[-1] == 4


def test_ranks_that_are_all_slow_and_noise_are_no_slow_rank() -> None:
    noise = random.Random(7)
    assert not any(course(SlowRanks(), *(tuple(noise.uniform(0.3, 0.42) for _ in range(8)) for _ in range(200))))
    assert not any(course(SlowRanks(), *[(0.3,) * 8] * 5, *[(0.9,) * 8] * 5))


def test_a_wait_in_which_the_clock_of_the_host_is_set_is_left_out() -> None:
    waited = WaitedSeconds(5.0, sampled_at=100.0)
    assert waited.add(5.4, 101.0) == pytest.approx(0.4)
    assert waited.add(5.4 + 3600, 102.0) == 0
    assert waited.add(6.0, 103.0) == 0
    assert waited.add(6.5, 104.0) == pytest.approx(0.5)
    assert waited.add(6.5, 404.0) == 0  # it waits for five minutes
    assert waited.add(306.4, 405.0) == pytest.approx(299.9)


@pytest.mark.parametrize("text", ["soon", "0", "nan"])
def test_a_variable_that_is_no_time_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HVD_SLOW_RANK_SECONDS", text)
    with pytest.raises(UsageError, match=f"HVD_SLOW_RANK_SECONDS is '{text}'; it must be a number of seconds above 0"):
        seconds_of("HVD_SLOW_RANK_SECONDS")
