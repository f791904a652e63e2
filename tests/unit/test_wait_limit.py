"""A wait ends: after its time, and for a job that only the user can correct."""

import pytest
import typer

from horovodjob.client.errors import Stalled, TimedOut
from horovodjob.client.jobs.wait_limit import WaitLimit, seconds_text
from horovodjob_cli.options import parsed_duration
from horovodjob_cli.output import as_options


def job(phase: str = "Queued", *, stalled: bool = False, name: str = "train") -> dict[str, object]:
    """A job, stalled or not."""
    condition = {"type": "Stalled", "status": str(stalled), "reason": "InvalidSpec", "message": "set spec.image"}
    return {"metadata": {"name": name, "uid": name}, "status": {"phase": phase, "conditions": [condition]}}


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_job_that_stays_stalled_ends_the_wait_after_15_seconds(clock: Clock) -> None:
    limit, jobs = WaitLimit(clock=clock), (job(name="other"), job(stalled=True))
    for _ in range(15):
        limit.check(*jobs)
        clock.now += 1
    with pytest.raises(
        Stalled, match=r"job train cannot continue until you act: InvalidSpec: set spec\.image"
    ) as error:
        limit.check(*jobs)
    assert error.value.exit_code == 4


def test_a_job_that_is_stalled_for_a_moment_again_and_again_does_not_end_the_wait(clock: Clock) -> None:
    limit = WaitLimit(clock=clock)
    for _ in range(10):
        limit.check(job(stalled=True))
        clock.now += 14
        limit.check(job(stalled=True))
        limit.check(job(stalled=False))
        clock.now += 10


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_passes_although_kstatus_calls_a_failed_one_stalled(clock: Clock, phase: str) -> None:
    limit = WaitLimit(5, clock=clock)
    limit.check(job(phase, stalled=True))
    clock.now += 100
    limit.check(job(phase, stalled=True))


def test_a_wait_for_stalled_jobs_ends_at_its_time(clock: Clock) -> None:
    limit = WaitLimit(90, waits_for_stalled=True, clock=clock)
    clock.now += 89
    limit.check(job(stalled=True))
    clock.now += 1
    with pytest.raises(TimedOut, match=r"^job train did not end \(Queued\) within 1 min 30 s \(`timeout=`\)$") as error:
        limit.check(job(stalled=True))
    assert error.value.exit_code == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("0", 0), ("1.5", 1.5), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1d", 86400), ("2m5", 125)],
)
def test_a_time_is_a_number_of_seconds_or_has_units(text: str, seconds: float) -> None:
    assert parsed_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "5 weeks", "m", "1s2m", "inf", "nan"])
def test_another_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        parsed_duration(text)


def test_times_are_written_with_units() -> None:
    assert [seconds_text(each) for each in (0, 15, 0.5, 90, 5400)] == [
        "0 s",
        "15 s",
        "0.5 s",
        "1 min 30 s",
        "1 h 30 min",
    ]


def test_the_command_line_shows_options_for_the_arguments_of_the_library() -> None:
    sentence = "within 5 s (`timeout=`); `gpus=0`, `resource_group=` or `source=`"
    assert as_options(sentence) == "within 5 s (--timeout); --gpus 0, --resource-group or --from"
