"""When a training counts as stalled, and whom the others wait for."""

import pytest

from horovodjob_trainer.watch import activity
from horovodjob_trainer.watch.activity import Activity, Field
from horovodjob_trainer.watch.judgement import RankState, deadline_seconds, verdict, verdict_text
from horovodjob_trainer.watch.sections import Section, limit_seconds
from horovodjob_trainer.watch.stacks import grouped, program_frame, ranks_text

MINUTE = 60.0


class Clock:
    """The monotonic clock of a rank."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self.wall


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(activity, "time", clock)
    return clock


@pytest.fixture
def rank(clock: Clock) -> Activity:
    """A rank that has completed three steps of a second."""
    rank = Activity()
    rank.enter(Section.START)
    for _ in range(4):
        clock.now += 1
        rank.complete_step()
    return rank


def limit(rank: Activity) -> float:
    return limit_seconds(rank.current, rank[Field.LONGEST], rank[Field.STEPS_IN_ATTEMPT])


@pytest.mark.parametrize(
    ("section", "longest", "steps", "minutes"),
    [
        (Section.START, 0.0, 0, 60),
        (Section.SETUP, 0.0, 0, 240),
        (Section.STEP, 0.0, 1, 60),
        (Section.STEP, 0.8, 500, 5),
        (Section.STEP, 2 * MINUTE, 500, 20),
        (Section.VALIDATION, 0.0, 500, 30),
        (Section.VALIDATION, 1.0, 500, 5),
        (Section.CHECKPOINT, 0.0, 500, 30),
        (Section.CHECKPOINT, 2 * MINUTE, 500, 20),
        (Section.SAVING, 0.0, 500, 30),
    ],
)
def test_a_section_has_ten_times_what_it_has_needed_before(
    section: Section, longest: float, steps: int, minutes: int
) -> None:
    assert limit_seconds(section, longest, steps) == minutes * MINUTE


def test_the_first_step_has_an_hour_also_with_a_shorter_deadline() -> None:
    assert deadline_seconds(90, Section.START, 0) == 60 * MINUTE
    assert deadline_seconds(90, Section.STEP, 1) == 90
    assert deadline_seconds(7200, Section.START, 0) == 7200
    assert deadline_seconds(7200, Section.SETUP, 0) == 240 * MINUTE
    assert deadline_seconds(90, Section.SAVING, 500) == 30 * MINUTE


def test_a_stall_does_not_make_the_next_one_last_longer(rank: Activity, clock: Clock) -> None:
    assert limit(rank) == 5 * MINUTE
    assert rank[Field.STEP_SECONDS] == pytest.approx(1)
    clock.now += 40 * MINUTE
    rank.complete_step()
    assert limit(rank) == 5 * MINUTE
    assert rank[Field.STEP_SECONDS] == pytest.approx(1)
    clock.now += 2 * MINUTE  # slow, and no stall
    rank.complete_step()
    assert limit(rank) == 20 * MINUTE


def test_batches_of_a_validation_are_progress(rank: Activity, clock: Clock) -> None:
    with rank.section(Section.VALIDATION):
        for _ in range(100):
            clock.now += MINUTE
            rank.progress()
        assert clock.now - rank[Field.SINCE] == 0
        assert limit(rank) == 10 * MINUTE
    assert rank.current is Section.STEP
    assert limit(rank) == 5 * MINUTE


def test_the_end_of_an_epoch_has_the_limit_of_a_validation(rank: Activity, clock: Clock) -> None:
    rank.enter(Section.EPOCH_END)
    assert limit(rank) == 30 * MINUTE
    clock.now += 20 * MINUTE  # a callback that saves the model
    rank.enter(Section.STEP)
    assert limit(rank) == 5 * MINUTE
    rank.enter(Section.EPOCH_END)
    assert limit(rank) == 200 * MINUTE


@pytest.mark.parametrize("section", [Section.EPOCH_END, Section.CHECKPOINT])
def test_a_section_that_always_takes_long_is_a_stall_only_once(rank: Activity, clock: Clock, section: Section) -> None:
    for _ in range(3):
        rank.enter(section)
        clock.now += 40 * MINUTE
        rank.enter(Section.STEP)
        assert rank[Field.STALLED] == 40 * MINUTE
    assert limit(rank) == 5 * MINUTE
    rank.enter(section)
    assert limit(rank) == 400 * MINUTE


def test_a_section_can_need_what_the_start_has_needed(rank: Activity, clock: Clock) -> None:
    rank.enter(Section.START)
    clock.now += 40 * MINUTE  # full buffers of a shuffled dataset, which the next epoch fills again
    rank.complete_step()
    rank.complete_step()
    assert limit(rank) == 40 * MINUTE


def test_a_clock_that_jumps_is_no_stall(rank: Activity, clock: Clock) -> None:
    before = limit(rank), clock.now - rank[Field.SINCE]
    clock.wall += 30 * 24 * 60 * MINUTE
    assert (limit(rank), clock.now - rank[Field.SINCE]) == before
    clock.now += 1
    rank.complete_step()
    assert rank[Field.STALLED] == 0
    assert rank[Field.STEP_SECONDS] == pytest.approx(1)


def test_only_a_run_in_a_directory_knows_the_position_of_a_step(rank: Activity) -> None:
    assert (rank[Field.STEPS], rank[Field.STEPS_IN_ATTEMPT]) == (4, 4)
    rank.complete_step(740)
    rank.complete_step()  # of the same step, by the checks of `fit`
    assert (rank[Field.STEPS], rank[Field.STEPS_IN_ATTEMPT]) == (740, 5)


def test_outside_of_a_training_nothing_is_recorded() -> None:
    rank = Activity()
    rank.complete_step()
    with rank.section(Section.VALIDATION):
        assert rank.current is Section.OUTSIDE
    assert rank[Field.STEPS] == 0


def waiting(*ranks: int) -> list[RankState]:
    return [RankState(each, f"worker-{each}", Section.STEP, is_waiting=True) for each in ranks]


def exchanging(rank: int, **facts: object) -> RankState:
    return working(rank, is_waiting=True, **facts)


def working(rank: int, **facts: object) -> RankState:
    return RankState(rank, f"worker-{rank}", **{"section": Section.STEP, **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (
            [*waiting(0, 1, 2), working(3, kernel="is stopped")],
            "rank 3 on worker-3 is stopped; the other 3 ranks wait in the exchange",
        ),
        (
            [*waiting(0), working(1), working(2, is_answering=False)],
            "rank 2 on worker-2 does not answer: its pod, its node or the network to it has failed; one rank waits in "
            "the exchange",
        ),
        (waiting(0, 1), "all 2 ranks wait in the exchange: the network or its library does not get on"),
        (
            [exchanging(0, steps=7, frame="f in a.py:1"), exchanging(1, steps=8), exchanging(2, steps=8)],
            "all 3 ranks wait in the exchange, but not at the same place (rank 0 after step 7, at f in a.py:1; ranks "
            "1-2 after step 8): a rank may have skipped a step or a call",
        ),
        (
            [*(exchanging(rank, frame=f"f in a.py:{rank}") for rank in range(5))],
            "all 5 ranks wait in the exchange, but not at the same place (rank 0 after step 0, at f in a.py:0; rank 1 "
            "after step 0, at f in a.py:1; rank 2 after step 0, at f in a.py:2; 2 more): a rank may have skipped a "
            "step or a call",
        ),
        (
            [*waiting(0), exchanging(1, kernel="waits in the kernel (nfs_wait)"), working(2)],
            "rank 2 on worker-2 is computing, or reads its next batch; the other 2 ranks wait in the exchange",
        ),
        (
            [*waiting(0), exchanging(1, kernel="waits in the kernel (nfs_wait)")],
            "rank 1 on worker-1 waits in the kernel (nfs_wait); all 2 ranks wait in the exchange",
        ),
        (
            [*waiting(0), *(working(rank, frame=f"f in a.py:{rank // 2}") for rank in range(1, 9))],
            "rank 1 on worker-1 is computing, or reads its next batch, at f in a.py:0; rank 8 on worker-8 is "
            "computing, or reads its next batch, at f in a.py:4; ranks 2-3 on worker-2, worker-3: each is computing, "
            "or reads its next batch, at f in a.py:1; 2 more; one rank waits in the exchange",
        ),
        (
            [working(0, section=Section.INPUT), working(1, section=Section.INPUT)],
            "all 2 ranks are at the same place: each is in input: the share or the volume of the data may hang",
        ),
        (
            [working(0), working(1, silent_seconds=90.0, frame="f in a.py:1")],
            "rank 1 on worker-1 runs native code that keeps Python from running, called by f in a.py:1",
        ),
        (
            [working(0, section=Section.CHECKPOINT), *waiting(1)],
            "rank 0 on worker-0 writes a checkpoint; the other rank waits in the exchange",
        ),
    ],
)
def test_the_verdict_names_the_rank_that_the_others_wait_for(ranks: list[RankState], text: str) -> None:
    assert verdict_text(verdict(ranks)) == text


def test_ranks_at_the_same_place_are_one_group() -> None:
    step = 'Thread (most recent call first):\n  File "/x/lib/python3.11/queue.py", line 1 in get\n'
    main = 'Current thread (most recent call first):\n  File "/data/train.py", line {} in load\n'
    text = grouped({0: step + main.format(3), 2: main.format(3), 1: main.format(3), 7: main.format(9), 5: "is stopped"})
    assert text == (
        "rank 5, innermost frame first:\nis stopped\n"
        'rank 7, innermost frame first:\n  File "/data/train.py", line 9 in load\n'
        'ranks 0-2 (3 ranks), innermost frame first:\n  File "/data/train.py", line 3 in load'
    )
    assert ranks_text([4, 5, 9]) == "ranks 4-5, 9"


def test_the_frame_of_the_program_is_the_innermost_outside_of_libraries() -> None:
    frames = [
        '  File "/opt/venv/lib/python3.12/site-packages/numpy/a.py", line 1 in read',
        '  File "/usr/lib/python3.12/threading.py", line 2 in wait',
        '  File "/data/input.py", line 31 in load',
        '  File "/data/train.py", line 7 in <module>',
    ]
    assert program_frame(frames) == "load in input.py:31"
    assert program_frame(frames[:2]) == ""
