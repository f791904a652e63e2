"""Clock skew between nodes and operator: the times that kubelets report differ."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from integration.scenarios import finish_next_attempt, outcome
from support.job_driver import Job

SKEW = timedelta(minutes=2)


@pytest.mark.parametrize("skew", [SKEW, -SKEW], ids=["ahead", "behind"])
def test_a_job_restarts_and_succeeds_despite_clock_skew(submit_job: Callable[..., Job], skew: timedelta) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=1)
    same, other = submit_job("same"), submit_job("other")
    other.clock_skew = skew
    for job in (same, other):
        job.advance_to("Restarting")
        job.skip_backoff()
        finish_next_attempt(job)
    assert outcome(other) == outcome(same)
    status = other.status
    times = [datetime.fromisoformat(status[key]) for key in ("startTime", "completionTime")]
    assert begin <= times[0] <= times[1] <= datetime.now(UTC), "times of the operator's clock"
