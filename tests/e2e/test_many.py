"""Many jobs at once."""

from __future__ import annotations

from e2e.space import Space

JOBS = 20


def test_twenty_jobs_at_once_all_succeed(space: Space) -> None:
    names = [f"job-{index}" for index in range(JOBS)]
    space.apply(*(space.job(name, f"echo {name}") for name in names))
    for name in names:
        status = space.wait_phase(name, "Succeeded", seconds=240)
        assert (status["attempt"], status["restarts"], status["preemptions"]) == (1, 0, 0)
    for name in names:
        assert space.output(name) == [name]
        assert len(space.pods_ever(name)) == 2
